/// Number and kinds of the clients in a simulation, with the kinds of faults that its seed adds.
public struct Shape: Sendable, Equatable {
    /// Number of individual clients, each with its own few channels and its own subscriptions.
    public static let individuals = 6
    /// Number of clients in the crowd. They share their subscriptions with many others.
    public var crowd: Int
    /// True if sockets have so much buffer space that no client is slow. Otherwise, a client that lags while
    /// memberships change may receive a notice of a loss.
    public var isRoomy = false

    public init(clients: Int) { crowd = max(0, clients - Self.individuals) }

    /// True if all clients want single rows of tables without memberships, and no messages are sent. No client then
    /// needs most of the log, and a returning client skips those segments.
    public var isOfRows = false

    /// True if there are repeatedly times without clients, while changes continue.
    public var isLonely = false

    /// True if the stream does not report changed policies, as for partitioned tables that are published as themselves.
    public var isSilent = false

    /// True if the database is busy when a hub has no log yet. The log then begins only after other transactions have
    /// ended, when clients have already joined.
    public var isSlowToBegin = false

    /// Number of disconnected clients' channels that the hub can remember.
    public var departures = 131_072

    /// True if at times the log cannot be read, or part of it is damaged.
    public var failsReads = false

    /// True if the database deletes messages again, some of them while clients of their topic are disconnected.
    public var takesMessagesBack = false

    /// True if PostgreSQL takes seconds to evaluate policies, and clients often stop reading or disconnect before it
    /// answers. Their answers to pings then arrive after the hub has held back other changes.
    public var isSluggish = false

    /// True if the wall clock is set forward and back during the run.
    public var isUnsteady = false

    /// Returns the shape of a seed. Some seeds have a crowd, want single rows only, have times without clients, a
    /// silent stream or a late beginning. Others have little room for disconnected clients, a log with failing reads, a
    /// clock that is set, deleted messages, or a slow server.
    public static func usual(seed: UInt64) -> Shape {
        var shape = Shape(clients: seed % 10 == 7 ? 60 : individuals)
        shape.isOfRows = seed % 10 == 3
        shape.isLonely = seed % 20 == 14
        shape.isSilent = seed % 10 == 5
        shape.isSlowToBegin = seed % 8 == 6
        if seed % 7 == 2 { shape.departures = 4 }
        shape.failsReads = seed % 4 == 0
        shape.isUnsteady = seed % 8 == 3
        shape.takesMessagesBack = seed % 11 == 5
        shape.isSluggish = seed % 13 == 8
        return shape
    }

    /// Size of a segment in bytes. A crowd's transactions are large. A reader that skips segments needs many small
    /// ones.
    var segmentBytes: UInt64 { hasCrowd ? 256 << 10 : isOfRows ? 4 << 10 : 32 << 10 }

    var clients: Int { Self.individuals + crowd }
    var hasCrowd: Bool { crowd > 0 }

    /// Number of different sets of subscriptions in the crowd.
    static let seatsOfCrowd: UInt64 = 12

    func isOfCrowd(_ client: Int) -> Bool { client >= Self.individuals }

    /// Returns a random client. All individual clients together are chosen as often as the whole crowd.
    func someClient(_ random: inout some RandomNumberGenerator) -> Int {
        guard hasCrowd, Bool.random(using: &random) else { return Int.random(in: 0..<Self.individuals, using: &random) }
        return Int.random(in: Self.individuals..<clients, using: &random)
    }
}
