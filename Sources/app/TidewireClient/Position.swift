/// A place in the server's event log, `epoch.offset`: what comes before it has been told. Kept by the app beside what it made
/// of the changes, it is where the client goes on after any absence.
public struct Position: Sendable, Hashable, Codable, CustomStringConvertible {
    /// The log's name; another one after a gap in history.
    public let epoch: String
    public let offset: UInt64

    public init(epoch: String, offset: UInt64) {
        self.epoch = epoch
        self.offset = offset
    }

    /// Nil for what is no position.
    public init?(_ text: String) {
        guard let dot = text.lastIndex(of: "."), dot != text.startIndex,
            let offset = UInt64(text[text.index(after: dot)...])
        else { return nil }
        self.init(epoch: String(text[..<dot]), offset: offset)
    }

    public var description: String { "\(epoch).\(offset)" }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let position = Position(try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a position")
        }
        self = position
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }

    /// Whether whoever stands here has been told of what ends there. Positions of other epochs cannot be compared.
    func covers(_ other: Position) -> Bool { epoch == other.epoch && offset >= other.offset }
}
