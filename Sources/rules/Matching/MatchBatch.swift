/// Node that a change matched: subscriptions that want the same of the same table. Valid until the index changes.
public struct MatchedNode: Sendable, Hashable, BitwiseCopyable {
    /// Only member of the node, if there is one and its key knew it. First field, because a span of members begins
    /// here.
    @usableFromInline let soleMember: UInt32
    let number: UInt32

    init(_ number: UInt32, soleMember: UInt32) {
        self.soleMember = soleMember
        self.number = number
    }
}

/// Nodes that some changes of a transaction matched, change by change. The batch is reused for the next changes and
/// keeps its memory.
public struct MatchBatch: ~Copyable {
    private var certainNodes = Pool<MatchedNode>()
    private var askingNodes = Pool<MatchedNode>()
    private var skippedNodes = Pool<MatchedNode>()
    private var ends = Pool<Ends>()

    /// Ends of a change's nodes in the three lists.
    struct Ends: BitwiseCopyable {
        var certain: UInt32 = 0
        var asking: UInt32 = 0
        var skipped: UInt32 = 0
        var isLeft = false
    }

    public init() {}

    /// Number of changes that were judged, beginning with the next one of the part.
    public var changeCount: Int { ends.count }

    public var hasMatches: Bool { !certainNodes.isEmpty || !askingNodes.isEmpty }

    /// Returns the nodes whose predicate is true for a change.
    @_lifetime(borrow self)
    public func certain(of change: Int) -> Span<MatchedNode> {
        certainNodes.span.extracting(Int(start(of: change).certain)..<Int(ends[change].certain))
    }

    /// Returns the nodes about whose predicate PostgreSQL must be asked.
    @_lifetime(borrow self)
    public func asking(of change: Int) -> Span<MatchedNode> {
        askingNodes.span.extracting(Int(start(of: change).asking)..<Int(ends[change].asking))
    }

    /// Returns the nodes that were not evaluated, because that would have exceeded their allowance.
    @_lifetime(borrow self)
    public func skipped(of change: Int) -> Span<MatchedNode> {
        skippedNodes.span.extracting(Int(start(of: change).skipped)..<Int(ends[change].skipped))
    }

    public var hasSkipped: Bool { !skippedNodes.isEmpty }

    /// True if a change was not judged, because its image lacks a column that some predicate looks at.
    @inline(__always)
    public func isLeft(_ change: Int) -> Bool { ends[change].isLeft }

    private func start(of change: Int) -> Ends { change == 0 ? Ends() : ends[change - 1] }

    public mutating func removeAll() {
        certainNodes.removeAll()
        askingNodes.removeAll()
        skippedNodes.removeAll()
        ends.removeAll()
    }

    @inline(__always)
    mutating func addCertain(_ node: UInt32, soleMember: UInt32 = .none) {
        certainNodes.append(MatchedNode(node, soleMember: soleMember))
    }

    @inline(__always)
    mutating func addAsking(_ node: UInt32) { askingNodes.append(MatchedNode(node, soleMember: .none)) }

    mutating func addSkipped(_ node: UInt32) { skippedNodes.append(MatchedNode(node, soleMember: .none)) }

    /// Ends a change. Nodes that are added later belong to the next change.
    @inline(__always)
    mutating func endChange(isLeft: Bool = false) {
        ends.append(
            Ends(
                certain: UInt32(certainNodes.count), asking: UInt32(askingNodes.count),
                skipped: UInt32(skippedNodes.count), isLeft: isLeft))
    }
}
