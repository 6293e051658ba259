/// Number of clients in a simulation, and their properties.
public struct Shape: Sendable, Equatable {
    /// Clients with subscriptions of their own: no two of their channels have the same bindings.
    public static let individuals = 6
    /// Number of further clients, which share their bindings with many others.
    public var crowd: Int
    /// True if sockets take so much that no client is slow. A client that resumes may be told of a loss that
    /// memberships cause.
    public var isRoomy = false

    public init(clients: Int) { crowd = max(0, clients - Self.individuals) }

    /// True if all clients want single rows of tables without memberships in their policies, and the database sends no
    /// messages. Then most of the log concerns no client, and a catch-up skips it.
    public var isOfRows = false

    /// True if no client is subscribed at times, while changes go on.
    public var isLonely = false

    /// True if the stream does not announce changes of policies, as with partitioned tables published as themselves.
    /// themselves.
    public var isSilent = false

    /// True if a new hub's log begins late, when other transactions have ended. Clients have joined by then.
    public var isSlowToBegin = false

    /// Number of gone clients' channels that the hub has room for.
    public var departures = 131_072

    /// True if the log cannot be read for a while now and then, or a part of it is damaged.
    public var failsReads = false

    /// True if the wall clock is set forward and back during the run.
    public var isUnsteady = false

    /// Returns the shape of a seed. Some seeds have a crowd, only single rows, no clients at times, a silent
    /// stream or a late start. Others have little room for gone clients, a log that does not read, or a clock that is
    /// set.
    public static func usual(seed: UInt64) -> Shape {
        var shape = Shape(clients: seed % 10 == 7 ? 60 : individuals)
        shape.isOfRows = seed % 10 == 3
        shape.isLonely = seed % 20 == 14
        shape.isSilent = seed % 10 == 5
        shape.isSlowToBegin = seed % 8 == 6
        if seed % 7 == 2 { shape.departures = 4 }
        shape.failsReads = seed % 4 == 0
        shape.isUnsteady = seed % 8 == 3
        return shape
    }

    /// Size of segments: large for a crowd's large transactions, small for catch-ups that skip segments.
    var segmentBytes: UInt64 { hasCrowd ? 256 << 10 : isOfRows ? 4 << 10 : 32 << 10 }

    var clients: Int { Self.individuals + crowd }
    var hasCrowd: Bool { crowd > 0 }

    /// Number of different subscriptions in the crowd.
    static let seatsOfCrowd: UInt64 = 12

    func isOfCrowd(_ client: Int) -> Bool { client >= Self.individuals }

    /// Returns a random client. The individuals together are chosen as often as the whole crowd.
    func someClient(_ random: inout some RandomNumberGenerator) -> Int {
        guard hasCrowd, Bool.random(using: &random) else { return Int.random(in: 0..<Self.individuals, using: &random) }
        return Int.random(in: Self.individuals..<clients, using: &random)
    }
}
