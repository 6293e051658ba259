import Net

/// Purpose of a timer in 64 bits: its kind, the number of a channel, project or connection, and the generation of that
/// number.
enum TimerToken: Equatable {
    case request(ConnectionID)
    case expiry(channel: ChannelPlace, generation: UInt32)
    /// Sends the refusal of a request after its pause.
    case refusal(UInt32)
    case join(channel: ChannelPlace, generation: UInt32)
    /// Asks the catalog again about a channel's bindings.
    case bind(channel: ChannelPlace, generation: UInt32)
    /// Runs another turn of a project's followers, which read the log.
    case reread(ChannelPlace)
    /// Ends a channel's pause between loss reports.
    case loss(channel: ChannelPlace, generation: UInt32)
    /// Ends a channel's pause between reports that records lack values.
    case lack(channel: ChannelPlace, generation: UInt32)
    /// Checks if fewer changes wait for PostgreSQL's answers.
    case space(ChannelPlace)
    /// Checks if the log now has all transactions in the answers with which PostgreSQL fills membership sets.
    case unwind(ChannelPlace)
    /// Checks again if the hub receives messages that PostgreSQL broadcasts, for a channel that wants to know.
    case ready(channel: ChannelPlace, generation: UInt32)
    /// Ends the pause in which the loop reads no large messages.
    case largeInput
    /// Pings clients, to learn what they have received.
    case receipts
    /// Disconnects the next clients before the hub stops.
    case farewells
    /// Runs the next step of the sweep over a project's channels.
    case standings(ChannelPlace)
    /// Passes the record of a project's deliveries to the log.
    case sentRecord(ChannelPlace)

    private enum Kind: UInt64, CaseIterable {
        case request, expiry, refusal, join, bind, reread, loss, lack, space, unwind, ready, largeInput, receipts,
            farewells,
            standings, sentRecord
    }

    private static let numberBits: UInt64 = 32
    private static let generationBits: UInt64 = 26
    private static let generationMask: UInt64 = (1 << generationBits) - 1
    private static let kindBits = 64 - numberBits - generationBits

    /// Returns the bits of a generation that a timer token has room for.
    static func cut(_ generation: UInt32) -> UInt32 { generation & UInt32(generationMask) }

    var rawValue: UInt64 {
        switch self {
        case .request(let id): Self.pack(.request, id.seat, id.generation)
        case .expiry(let place, let generation): Self.pack(.expiry, place.number, generation)
        case .refusal(let number): Self.pack(.refusal, number)
        case .join(let place, let generation): Self.pack(.join, place.number, generation)
        case .bind(let place, let generation): Self.pack(.bind, place.number, generation)
        case .reread(let place): Self.pack(.reread, place.number)
        case .loss(let place, let generation): Self.pack(.loss, place.number, generation)
        case .lack(let place, let generation): Self.pack(.lack, place.number, generation)
        case .space(let place): Self.pack(.space, place.number)
        case .unwind(let place): Self.pack(.unwind, place.number)
        case .ready(let place, let generation): Self.pack(.ready, place.number, generation)
        case .largeInput: Self.pack(.largeInput)
        case .receipts: Self.pack(.receipts)
        case .farewells: Self.pack(.farewells)
        case .standings(let place): Self.pack(.standings, place.number)
        case .sentRecord(let place): Self.pack(.sentRecord, place.number)
        }
    }

    private static func pack(_ kind: Kind, _ number: UInt32 = 0, _ generation: UInt32 = 0) -> UInt64 {
        assert(kind.rawValue < 1 << kindBits, "each kind has a value of its own")
        return kind.rawValue << (numberBits + generationBits) | UInt64(number) << generationBits
            | UInt64(cut(generation))
    }

    init?(rawValue: UInt64) {
        guard let kind = Kind(rawValue: rawValue >> (Self.numberBits + Self.generationBits)) else { return nil }
        let number = UInt32(truncatingIfNeeded: rawValue >> Self.generationBits)
        let generation = UInt32(rawValue & Self.generationMask)
        let place = ChannelPlace(number: number)
        switch kind {
        case .request: self = .request(ConnectionID(seat: number, generation: generation))
        case .expiry: self = .expiry(channel: place, generation: generation)
        case .refusal: self = .refusal(number)
        case .join: self = .join(channel: place, generation: generation)
        case .bind: self = .bind(channel: place, generation: generation)
        case .reread: self = .reread(place)
        case .loss: self = .loss(channel: place, generation: generation)
        case .lack: self = .lack(channel: place, generation: generation)
        case .space: self = .space(place)
        case .unwind: self = .unwind(place)
        case .ready: self = .ready(channel: place, generation: generation)
        case .largeInput: self = .largeInput
        case .receipts: self = .receipts
        case .farewells: self = .farewells
        case .standings: self = .standings(place)
        case .sentRecord: self = .sentRecord(place)
        }
    }
}
