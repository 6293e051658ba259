/// How many clients a simulation has, and what they are like.
public struct Shape: Sendable, Equatable {
    /// Each of these is a world of its own: some channels, of which no two ask the same.
    public static let individuals = 6
    /// Beside them, those who ask what many others ask.
    public var crowd: Int
    /// Sockets take so much that nobody is slow: who comes from behind may be told of a loss that memberships hide.
    public var isRoomy = false

    public init(clients: Int) { crowd = max(0, clients - Self.individuals) }

    /// All want single rows, of tables that nobody's memberships guard, and the database says nothing to topics: much of the log
    /// is for nobody, and who comes back passes over it.
    public var isOfRows = false

    /// Time and again nobody listens, while changes go on.
    public var isLonely = false

    /// The stream says nothing of policies that become others, as it is with partitioned tables that are published as
    /// themselves.
    public var isSilent = false

    /// The database is busy where a hub has no log yet: it begins only when others have ended their transactions, and clients
    /// have joined by then.
    public var isSlowToBegin = false

    /// Number of gone clients' channels that the hub has room for.
    public var departures = 131_072

    /// True if the log cannot be read for a while now and then, or a part of it is damaged.
    public var failsReads = false

    /// True if the wall clock is set forward and back during the run.
    public var isUnsteady = false

    /// Returns the shape of a seed. Some seeds have a crowd, want only rows, are lonely, have a silent stream or begin late.
    /// Others have little room for gone clients, a log that does not read, or a clock that is set.
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

    /// A crowd's transactions are large; who passes over segments needs many.
    var segmentBytes: UInt64 { hasCrowd ? 256 << 10 : isOfRows ? 4 << 10 : 32 << 10 }

    var clients: Int { Self.individuals + crowd }
    var hasCrowd: Bool { crowd > 0 }

    /// So many different things are asked by the crowd.
    static let seatsOfCrowd: UInt64 = 12

    func isOfCrowd(_ client: Int) -> Bool { client >= Self.individuals }

    /// The individuals are as often at something as all others together.
    func someClient(_ random: inout some RandomNumberGenerator) -> Int {
        guard hasCrowd, Bool.random(using: &random) else { return Int.random(in: 0..<Self.individuals, using: &random) }
        return Int.random(in: Self.individuals..<clients, using: &random)
    }
}
