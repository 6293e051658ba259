/// Number and kinds of the clients in a simulation.
public struct Shape: Sendable, Equatable {
    /// Number of individual clients, each with its own few channels and its own subscriptions.
    public static let individuals = 6
    /// Number of additional clients that share their subscriptions with many others.
    public var crowd: Int
    /// True if sockets have room for so much that no client is slow. A lagging client may be told of a loss that
    /// memberships hide.
    public var isRoomy = false

    public init(clients: Int) { crowd = max(0, clients - Self.individuals) }

    /// True if all clients want single rows of tables without memberships, and no messages are sent. Most of the log is
    /// then for no client, and a returning client skips it.
    public var isOfRows = false

    /// True if there are repeated times without listeners, while changes continue.
    public var isLonely = false

    /// True if the stream says nothing of changed policies, as for partitioned tables that are published as themselves.
    public var isSilent = false

    /// True if the database is busy when a hub has no log yet. The log begins only after other transactions have ended,
    /// and clients have joined by then.
    public var isSlowToBegin = false

    /// Number of gone clients' channels that the hub has room for.
    public var departures = 131_072

    /// True if the log cannot be read for a while now and then, or a part of it is damaged.
    public var failsReads = false

    /// True if messages are deleted again, some of them while those who listened to their topic are away.
    public var takesMessagesBack = false

    /// True if PostgreSQL takes seconds to judge rows, and clients are often frozen and cut meanwhile. Their answers to
    /// pings then come after other changes are held back.
    public var isSluggish = false

    /// True if the wall clock is set forward and back during the run.
    public var isUnsteady = false

    /// Returns the shape of a seed. Some seeds have a crowd, want only rows, are lonely, have a silent stream or begin
    /// late. Others have little room for gone clients, a log that does not read, a clock that is set, messages that are
    /// deleted again, or a slow server.
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

    /// Bytes of a segment. A crowd's transactions are large; a reader that skips segments needs many small ones.
    var segmentBytes: UInt64 { hasCrowd ? 256 << 10 : isOfRows ? 4 << 10 : 32 << 10 }

    var clients: Int { Self.individuals + crowd }
    var hasCrowd: Bool { crowd > 0 }

    /// Number of different sets of subscriptions in the crowd.
    static let seatsOfCrowd: UInt64 = 12

    func isOfCrowd(_ client: Int) -> Bool { client >= Self.individuals }

    /// Returns a random client. The individuals together are chosen as often as the whole crowd.
    func someClient(_ random: inout some RandomNumberGenerator) -> Int {
        guard hasCrowd, Bool.random(using: &random) else { return Int.random(in: 0..<Self.individuals, using: &random) }
        return Int.random(in: Self.individuals..<clients, using: &random)
    }
}
