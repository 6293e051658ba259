/// Policies of the benchmark `rls`. For each, the hub is compared with PostgreSQL (the "peer"), which decides the same
/// policy by SQL.
enum RlsPolicy: String, CaseIterable {
    case none
    case `true`
    case owner
    case ownerAndFilter = "owner + filter"
    case membership
    case fallback
    /// Like `fallback`, but the part that depends only on claims is outside of the function.
    case fallbackOnce = "fallback, claims read once"

    /// Name of the policy's table. Two policies may share a table.
    var table: String {
        switch self {
        case .none: "rls_none"
        case .true: "rls_true"
        case .owner, .ownerAndFilter: "rls_owner"
        case .membership: "rls_membership"
        case .fallback: "rls_fallback"
        case .fallbackOnce: "rls_fallback_once"
        }
    }

    /// Condition of the policy; nil if the table has no row security.
    var condition: String? {
        switch self {
        case .none: nil
        case .true: "true"
        case .owner, .ownerAndFilter: "owner_id = auth.uid()"
        case .membership:
            "operation_id IN (SELECT operation_id FROM \(RlsStage.members) WHERE user_id = auth.uid())"
        case .fallback: "bench_is_mine(owner_id)"
        case .fallbackOnce: "bench_are_same(owner_id, (SELECT auth.uid()))"
        }
    }

    /// True if each client also has a filter for its own rows.
    var hasFilter: Bool { self == .ownerAndFilter }

    /// True if the hub cannot decide the policy itself and asks PostgreSQL.
    var isFallback: Bool { self == .fallback || self == .fallbackOnce }

    /// Name of the membership table that the policy reads; nil if it reads none.
    var members: String? { self == .membership ? RlsStage.members : nil }

    /// True if all clients see every row. Otherwise each row is for one client.
    var isForAll: Bool { self == .none || self == .true }

    /// SQL statements by which PostgreSQL, the peer, decides about one subscriber (`one`) and one change (`change`).
    ///
    /// An assignment is the cheapest statement of PL/pgSQL, and a single one can set both the role and the claims. With
    /// a filter, the peer asks only for subscribers whose filter matches, because comparing two values is less work
    /// than asking.
    var check: String {
        let ask = """
            settings := set_config('role', '\(RlsStage.role)', true) || set_config('request.jwt.claims', one.claims, true);
            found := EXISTS (SELECT 1 FROM \(table) WHERE seq = change);
            """
        return switch self {
        case .none: "found := true;"
        case .ownerAndFilter: "found := false; IF one.user_id = owner THEN \(ask) END IF;"
        case .true, .owner, .membership, .fallback, .fallbackOnce: ask
        }
    }

    func caseName(_ size: Int) -> String { "\(rawValue), \(size) subscriber" + (size == 1 ? "" : "s") }

    func sizes(isQuick: Bool) -> [Int] {
        if isQuick { return [1, 100] }
        // With more clients, each change would keep 100,000 deliveries waiting until PostgreSQL has answered for all of
        // them.
        return isFallback ? [1, 10, 100, 1000, 5000] : [1, 10, 100, 1000, 5000, 100_000]
    }

    var peerFunction: String { "bench_peer_" + rawValue.filter(\.isLetter) }

    var baseline: String {
        switch self {
        case .none: "loop over subscribers"
        case .ownerAndFilter: "filter, then EXISTS"
        case .true, .owner, .membership, .fallback, .fallbackOnce: "EXISTS per subscriber"
        }
    }

    /// Factor by which the hub's rate must exceed that of PostgreSQL, the peer; nil without a target.
    func target(subscribers: Int) -> Double? {
        switch (self, subscribers) {
        case (.owner, 1000), (.membership, 1000): 1000
        case (.owner, 5000), (.membership, 5000): 5000
        case (.fallback, 1000), (.fallbackOnce, 1000): 5
        default: nil
        }
    }

    /// Number of changes in one round, enough for a measurement. If each row is for one subscriber, all subscribers get
    /// the same number of rows.
    func changes(subscribers: Int, isQuick: Bool) -> Int {
        let deliveries = isQuick ? 20_000 : 1_000_000
        switch self {
        case .none, .true: return max(4, min(isQuick ? 500 : 50_000, deliveries / subscribers))
        case .owner, .ownerAndFilter, .membership:
            return Self.wholeRounds(isQuick ? 500 : 50_000, subscribers)
        // PostgreSQL is asked once for each subscriber and change, so fewer changes keep the number of questions
        // constant.
        case .fallback, .fallbackOnce: return max(4, min(1000, (isQuick ? 4000 : 200_000) / subscribers))
        }
    }

    private static func wholeRounds(_ wanted: Int, _ subscribers: Int) -> Int {
        (wanted + subscribers - 1) / subscribers * subscribers
    }

    /// Number of changes for measuring PostgreSQL, the peer; at least one. Measuring them takes about a second.
    func peerChanges(subscribers: Int, isQuick: Bool) -> Int {
        max(1, min(2000, (isQuick ? 5000 : 40_000) / subscribers))
    }
}
