import Bytes

/// State of a node of a cluster, which it tells the others with each sign of life.
public struct PeerStatus: Sendable, Equatable {
    public var node: String
    /// State of the node in the cluster, as its own answers name it.
    public var state: String
    /// Tenure in which the node feeds the stream, or the last one that it knows.
    public var tenure: UInt64
    /// Unix time in seconds since which the node feeds the stream; nil if it does not.
    public var feedsSince: Int64?
    /// Sequence of the last message of the stream that the node's log has.
    public var sequence: UInt64
    /// Nanoseconds since the log last had everything that the node knew of.
    public var lag: UInt64
    public var isFarBehind: Bool
    /// Number of clients that are connected to the node.
    public var clients: Int

    public init(
        node: String, state: String, tenure: UInt64, feedsSince: Int64?, sequence: UInt64, lag: UInt64,
        isFarBehind: Bool, clients: Int
    ) {
        self.node = node
        self.state = state
        self.tenure = tenure
        self.feedsSince = feedsSince
        self.sequence = sequence
        self.lag = lag
        self.isFarBehind = isFarBehind
        self.clients = clients
    }

    private static let maximumNameBytes = 256

    var encoded: [UInt8] {
        var members = JSONObject([
            ("node", .string(node)), ("state", .string(state)), ("tenure", .number(String(tenure))),
            ("sequence", .number(String(sequence))), ("lag", .number(String(lag))), ("far", .bool(isFarBehind)),
            ("clients", .number(clients)),
        ])
        if let feedsSince { members["since"] = .number(String(feedsSince)) }
        return JSONValue.object(members).bytes
    }

    /// Reads what another node has told; nil if it is invalid. Members of later versions are passed over.
    init?(_ bytes: [UInt8]) {
        guard let members = try? JSONValue.parse(bytes, maximumDepth: 4).object else { return nil }
        func number(_ name: String) -> UInt64? {
            if case .number(let digits)? = members[name] { UInt64(digits) } else { nil }
        }
        guard let node = members["node"]?.string, let state = members["state"]?.string, !node.isEmpty,
            node.utf8.count <= Self.maximumNameBytes, state.utf8.count <= Self.maximumNameBytes,
            let tenure = number("tenure"), let sequence = number("sequence"), let lag = number("lag"),
            let clients = members["clients"]?.integer, clients >= 0
        else { return nil }
        self.init(
            node: node, state: state, tenure: tenure, feedsSince: members["since"]?.integer.map { Int64($0) },
            sequence: sequence, lag: lag, isFarBehind: members["far"]?.bool ?? false, clients: clients)
    }
}

/// Other nodes of a cluster by name, with what each told last, also those that are silent now.
struct PeerRegister: Sendable {
    struct Known: Sendable, Equatable {
        var status: PeerStatus
        /// Monotonic time in nanoseconds of the last sign of life.
        var heardAt: UInt64
    }

    private(set) var known: [String: Known] = [:]
    private let most: Int

    init(most: Int) { self.most = most }

    /// Records a sign of life. If there is no room, forgets the node that has been silent for longest.
    mutating func heard(_ status: PeerStatus, at now: UInt64) {
        if known[status.node] == nil, known.count >= most,
            let oldest = known.min(by: { $0.value.heardAt < $1.value.heardAt })
        {
            known[oldest.key] = nil
        }
        known[status.node] = Known(status: status, heardAt: now)
    }
}
