/// A place in the server's event log, `epoch.offset`. The client has received every change before it. If the app saves
/// the position together with the changes, the client can resume from there after any absence.
public struct LogPosition: Sendable, Hashable, Codable, CustomStringConvertible {
    /// Id of the log's epoch. A gap in history begins a new epoch.
    public let epoch: String
    /// Number of the place in its epoch.
    public let offset: UInt64

    /// Creates a position from its parts.
    public init(epoch: String, offset: UInt64) {
        self.epoch = epoch
        self.offset = offset
    }

    /// Parses a position; nil for any other text.
    public init?(_ text: String) {
        guard let dot = text.lastIndex(of: "."), dot != text.startIndex,
            let offset = UInt64(text[text.index(after: dot)...])
        else { return nil }
        self.init(epoch: String(text[..<dot]), offset: offset)
    }

    /// The position as text, `epoch.offset`, which `init(_:)` parses.
    public var description: String { "\(epoch).\(offset)" }

    /// Decodes a position from its text.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let position = LogPosition(try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a position")
        }
        self = position
    }

    /// Encodes the position as its text.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }

    /// True if a client at this position has received the change that ends at `other`. Positions of different epochs
    /// cannot be compared.
    func covers(_ other: LogPosition) -> Bool { epoch == other.epoch && offset >= other.offset }
}
