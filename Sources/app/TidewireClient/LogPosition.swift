/// A position in the server's event log, `epoch.offset`. A client at this position has received all changes up to it.
/// An app that saves the position together with the changes can resume there at any later time.
public struct LogPosition: Sendable, Hashable, Codable, CustomStringConvertible {
    /// Id of the log's epoch, a period without a gap. After a gap in the log a new epoch begins.
    public let epoch: String
    /// Number of the position within its epoch.
    public let offset: UInt64

    /// Creates a position from its parts.
    public init(epoch: String, offset: UInt64) {
        self.epoch = epoch
        self.offset = offset
    }

    /// Parses a position; nil if the text is not a position.
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
