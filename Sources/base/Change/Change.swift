import Bytes

public enum Operation: UInt8, Sendable, Hashable, CaseIterable {
    case insert = 0x49  // I
    case update = 0x55  // U
    case delete = 0x44  // D
    case truncate = 0x54  // T
    /// Content written with `pg_logical_emit_message`, which belongs to no row.
    case message = 0x4d  // M

    public var name: String {
        switch self {
        case .insert: "INSERT"
        case .update: "UPDATE"
        case .delete: "DELETE"
        case .truncate: "TRUNCATE"
        case .message: "MESSAGE"
        }
    }
}

/// Columns of the row before the change that PostgreSQL sent.
public enum OldImage: UInt8, Sendable {
    case none = 0
    /// Key columns only. PostgreSQL sends the other columns as NULL; here that means "unknown".
    case key = 0x4b  // K
    case full = 0x4f  // O
}

/// Change of a row, a truncate or a message, read in place.
public struct Change: ~Escapable {
    public let operation: Operation
    public let oldImage: OldImage
    /// Flags. Truncate: bit 0 CASCADE, bit 1 RESTART IDENTITY. Message: bit 0 transactional.
    public let options: UInt8
    /// True if the row's values were removed from the log on demand. All columns of the images are then unknown. See
    /// `ForgottenMark`.
    public let isForgotten: Bool
    /// Fingerprint of the log's relation entry that has the schema of the row at that time. 0 for a message.
    public let relation: UInt64
    /// Both row images in one span, the old one before the new one, for callers that read values from either.
    public let images: RawSpan
    /// Length of the old image in `images`, in bytes.
    public let oldLength: Int

    @_lifetime(copy images)
    init(
        operation: Operation, oldImage: OldImage, options: UInt8, isForgotten: Bool = false, relation: UInt64,
        images: RawSpan, oldLength: Int
    ) {
        self.isForgotten = isForgotten
        self.operation = operation
        self.oldImage = oldImage
        self.options = options
        self.relation = relation
        self.images = images
        self.oldLength = oldLength
    }

    var oldBytes: RawSpan {
        @_lifetime(copy self)
        get { images.extracting(first: oldLength) }
    }

    var newBytes: RawSpan {
        @_lifetime(copy self)
        get { images.extracting(droppingFirst: oldLength) }
    }

    /// Row before the change, with the columns that the replica identity keeps; nil if PostgreSQL did not send it.
    public var old: Tuple? {
        @_lifetime(copy self)
        get { oldImage == .none ? nil : Tuple(oldBytes) }
    }

    /// Row after the change; nil unless the change is an insert or an update.
    public var new: Tuple? {
        @_lifetime(copy self)
        get {
            switch operation {
            case .insert, .update: Tuple(newBytes)
            case .delete, .truncate, .message: nil
            }
        }
    }

    /// Prefix of a message.
    public var messagePrefix: RawSpan {
        @_lifetime(copy self)
        get { oldBytes }
    }

    /// Content of a message.
    public var messageContent: RawSpan {
        @_lifetime(copy self)
        get { newBytes }
    }
}
