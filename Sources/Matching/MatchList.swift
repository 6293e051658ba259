/// Some subscriptions that want the same of the same table, and that a change met. Valid until the index changes.
public struct MatchedNode: Sendable, Hashable, BitwiseCopyable {
    let number: UInt32
}

/// What a change met. It is filled again for every change and keeps its memory.
public struct MatchList: ~Copyable {
    var certainNodes = Pool<MatchedNode>()
    var askingNodes = Pool<MatchedNode>()

    public init() {}

    /// Those whose predicate says yes.
    public var certain: Span<MatchedNode> {
        @_lifetime(borrow self)
        get { certainNodes.span }
    }

    /// Those whose predicate must be asked of PostgreSQL.
    public var asking: Span<MatchedNode> {
        @_lifetime(borrow self)
        get { askingNodes.span }
    }

    public var isEmpty: Bool { certainNodes.isEmpty && askingNodes.isEmpty }

    mutating func removeAll() {
        certainNodes.removeAll()
        askingNodes.removeAll()
    }
}
