/// Node that a change matched: a group of subscriptions that want the same changes of the same table. It is valid until
/// the index changes.
public struct MatchedNode: Sendable, Hashable, BitwiseCopyable {
    /// Sole member of the node if its key knew it, otherwise `.max`. It is the first field, because a span of members
    /// may begin at it.
    @usableFromInline let soleMember: UInt32
    let number: UInt32

    init(_ number: UInt32, soleMember: UInt32) {
        self.soleMember = soleMember
        self.number = number
    }
}

/// Nodes that some changes of a transaction matched, ordered by change. A batch can be used again and keeps its memory.
public struct MatchBatch: ~Copyable {
    private var certainNodes = Pool<MatchedNode>()
    private var askingNodes = Pool<MatchedNode>()
    private var skippedNodes = Pool<MatchedNode>()
    private var ends = Pool<Ends>()

    /// Indices at which a change's nodes end in the three lists.
    struct Ends: BitwiseCopyable {
        var certain: UInt32 = 0
        var asking: UInt32 = 0
        var skipped: UInt32 = 0
        var isLeft = false
    }

    public init() {}

    /// Number of changes that were read. They are the next ones of the transaction part.
    public var changeCount: Int { ends.count }

    public var hasMatches: Bool { !certainNodes.isEmpty || !askingNodes.isEmpty }

    /// Returns the nodes that want the change, because their predicate is true.
    @_lifetime(borrow self)
    public func certain(of change: Int) -> Span<MatchedNode> {
        certainNodes.span.extracting(Int(start(of: change).certain)..<Int(ends[change].certain))
    }

    /// Returns the nodes whose predicate only PostgreSQL can decide for the change.
    @_lifetime(borrow self)
    public func asking(of change: Int) -> Span<MatchedNode> {
        askingNodes.span.extracting(Int(start(of: change).asking)..<Int(ends[change].asking))
    }

    /// Returns the nodes that were not evaluated, because their account had used up its allowance.
    @_lifetime(borrow self)
    public func skipped(of change: Int) -> Span<MatchedNode> {
        skippedNodes.span.extracting(Int(start(of: change).skipped)..<Int(ends[change].skipped))
    }

    public var hasSkipped: Bool { !skippedNodes.isEmpty }

    /// True if the change was not matched, because its row lacks a column that some predicate reads.
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

    /// Ends the current change. Nodes that are added later belong to the next change.
    @inline(__always)
    mutating func endChange(isLeft: Bool = false) {
        ends.append(
            Ends(
                certain: UInt32(certainNodes.count), asking: UInt32(askingNodes.count),
                skipped: UInt32(skippedNodes.count), isLeft: isLeft))
    }
}
