/// Kind of fault that the verifier causes.
enum Fault: String, CaseIterable, Sendable {
    // Faults between clients and hub.
    case socketsCut = "sockets-cut"
    case linksStalled = "links-stalled"
    case linksSlow = "links-slow"
    case proxyKilled = "proxy-killed"
    case clientsFrozen = "clients-frozen"
    case tokensRenewed = "tokens-renewed"
    case tokensExpired = "tokens-expired"
    // Faults of the hub, of the database, and between them.
    case hubKilled = "hub-killed"
    case hubTerminated = "hub-terminated"
    case hubFrozen = "hub-frozen"
    case hubDiskFull = "hub-disk-full"
    case serverKilled = "server-killed"
    case serverRestarted = "server-restarted"
    case walsenderKilled = "walsender-killed"
    case backendsKilled = "backends-killed"
    case catalogStirred = "catalog-stirred"
    case slotDropped = "slot-dropped"
    case publicationChanged = "publication-changed"
    case policyChanged = "policy-changed"
    case membershipsChanged = "memberships-changed"
    case standbyAbsent = "standby-absent"
    case clockStepped = "clock-stepped"
    // Faults of the NATS servers of a cluster.
    case natsKilled = "nats-killed"
    case natsTerminated = "nats-terminated"
    case natsFrozen = "nats-frozen"
    case natsAllKilled = "nats-all-killed"
    case leaderMoved = "leader-moved"
    // Partitions of the network between them, the hubs and the database.
    case natsCut = "nats-cut"
    case routesCut = "routes-cut"
    case hubCut = "hub-cut"
    case hubCutFromDatabase = "hub-cut-from-database"

    /// Group of faults. One fault of each lane runs at a time. The lane `connections` disturbs the clients and their
    /// connections; `behind` disturbs the hub and the database; `servers` disturbs the NATS servers of a cluster.
    enum Lane: UInt64, CaseIterable, Sendable {
        case connections = 1
        case behind = 2
        case servers = 3
    }

    var lane: Lane {
        switch self {
        case .socketsCut, .linksStalled, .linksSlow, .proxyKilled, .clientsFrozen, .tokensRenewed, .tokensExpired:
            .connections
        case .natsKilled, .natsTerminated, .natsFrozen, .natsAllKilled, .leaderMoved: .servers
        case .natsCut, .routesCut, .hubCut, .hubCutFromDatabase: .servers
        default: .behind
        }
    }

    /// True if the fault needs a network that can be cut.
    var isPartition: Bool {
        switch self {
        case .natsCut, .routesCut, .hubCut, .hubCutFromDatabase: true
        default: false
        }
    }

    /// Probability of the fault, relative to the other faults of its lane.
    var weight: Int {
        switch self {
        case .socketsCut, .hubKilled: 4
        case .linksStalled, .proxyKilled, .hubTerminated, .clientsFrozen, .natsKilled, .natsFrozen: 3
        case .slotDropped, .publicationChanged, .serverRestarted, .natsAllKilled: 1
        default: 2
        }
    }

    /// Deviation of the hub's behavior that the fault excuses; nil if it excuses none.
    var excuse: ClientLedger.Cause.Effect? {
        switch self {
        // These faults remove history from the log, or may do so.
        case .slotDropped, .publicationChanged: .loss
        // If a commit stays hidden for 5 s, the hub gives up its rows that only PostgreSQL can judge, and tells the
        // clients.
        case .standbyAbsent: .loss
        case .linksStalled, .linksSlow, .clientsFrozen, .hubFrozen, .hubDiskFull: .silence
        // Other nodes learn what a client has acknowledged by the servers.
        case .natsKilled, .natsTerminated, .natsFrozen, .natsAllKilled, .natsCut, .routesCut, .hubCut: .silence
        default: nil
        }
    }
}

/// Sequence of faults that is determined by the seed alone.
struct FaultSchedule: Sendable {
    struct Entry: Sendable, Equatable {
        var fault: Fault
        var pauseMilliseconds: Int
        /// Seed of the random choices that the fault makes.
        var seed: UInt64
    }

    private var chance: VerifyChance
    private let faults: [Fault]

    /// Creates a schedule; nil if the lane has none of the chosen faults.
    init?(seed: UInt64, lane: Fault.Lane, of chosen: [Fault] = Fault.allCases) {
        chance = VerifyChance(seed, lane: lane.rawValue)
        faults = chosen.filter { $0.lane == lane }.flatMap { Array(repeating: $0, count: $0.weight) }
        if faults.isEmpty { return nil }
    }

    mutating func next() -> Entry {
        Entry(fault: chance.pick(faults), pauseMilliseconds: chance.number(800...4000), seed: chance.next())
    }
}
