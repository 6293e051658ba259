import Bytes

/// Name of a topic: `realtime:` and the sub-topic. Private and public topics of the same name are separate.
public struct TopicName: Sendable, Hashable {
    public let isPrivate: Bool
    /// Name as clients write it, with the prefix `realtime:`.
    public let full: [UInt8]

    private static let prefix = Array("realtime:".utf8)

    public init(_ subTopic: RawSpan, isPrivate: Bool) {
        self.isPrivate = isPrivate
        var full: [UInt8] = []
        full.reserveCapacity(Self.prefix.count + subTopic.byteCount)
        full += Self.prefix
        for offset in 0..<subTopic.byteCount { full.append(subTopic.byte(offset)) }
        self.full = full
        assert(self.subTopic.equals(subTopic), "a name whose sub-topic is another one")
    }

    public init(_ subTopic: String, isPrivate: Bool) {
        self.isPrivate = isPrivate
        full = Self.prefix + Array(subTopic.utf8)
    }

    /// Name without the prefix, as REST, the database and policies use it; its bytes are borrowed.
    public var subTopic: RawSpan {
        @_lifetime(borrow self)
        get {
            // SAFETY: any byte is a valid UInt8; the span lives no longer than `full`, which belongs to `self`.
            let span = unsafe full.span.bytes.extracting(Self.prefix.count..<full.count)
            return unsafe _overrideLifetime(span, borrowing: self)
        }
    }

    func matches(_ subTopic: RawSpan, isPrivate: Bool) -> Bool {
        self.isPrivate == isPrivate && self.subTopic.equals(subTopic)
    }
}
