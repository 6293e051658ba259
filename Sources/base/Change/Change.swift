import Bytes

public enum Operation: UInt8, Sendable, Hashable, CaseIterable {
    case insert = 0x49  // I
    case update = 0x55  // U
    case delete = 0x44  // D
    case truncate = 0x54  // T
    /// Not a row's: something written with pg_logical_emit_message.
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

/// What is known of the row before the change.
public enum OldImage: UInt8, Sendable {
    case none = 0
    /// Key columns only; the others are sent as NULL and mean "unknown".
    case key = 0x4b  // K
    case full = 0x4f  // O
}

/// One change of one row (or a truncate, or a message), read in place.
public struct Change: ~Escapable {
    public let operation: Operation
    public let oldImage: OldImage
    /// Truncate: bit 0 CASCADE, bit 1 RESTART IDENTITY. Message: bit 0 transactional.
    public let options: UInt8
    /// Its values were removed from the log on demand: all columns of its images are unknown. See `ForgottenMark`.
    public let isForgotten: Bool
    /// The schema the row had: the fingerprint of a relation entry. Zero for a message.
    public let relation: UInt64
    /// Both row images, the old one before the new one: one span for who takes values from either.
    public let images: RawSpan
    /// How many bytes of `images` are the old one's.
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

    /// The row before the change, as far as the replica identity keeps it.
    public var old: Tuple? {
        @_lifetime(copy self)
        get { oldImage == .none ? nil : Tuple(oldBytes) }
    }

    /// The row after the change.
    public var new: Tuple? {
        @_lifetime(copy self)
        get {
            switch operation {
            case .insert, .update: Tuple(newBytes)
            case .delete, .truncate, .message: nil
            }
        }
    }

    /// A message's prefix.
    public var messagePrefix: RawSpan {
        @_lifetime(copy self)
        get { oldBytes }
    }

    /// A message's content.
    public var messageContent: RawSpan {
        @_lifetime(copy self)
        get { newBytes }
    }
}
