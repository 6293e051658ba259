import TestSupport

/// One action on the simulated world, and the pause after it.
public struct Step: Sendable, Equatable, CustomStringConvertible {
    public enum Action: Sendable, Equatable {
        case write(seed: UInt64)
        /// The database sends messages to topics.
        case say(seed: UInt64)
        case truncate(seed: UInt64)
        case memberships(seed: UInt64)
        case define(seed: UInt64)
        case join(client: Int, channel: Int, seed: UInt64)
        case leave(client: Int, channel: Int)
        case everybodyLeaves
        /// Every client of the crowd that has not joined joins now.
        case gather(seed: UInt64)
        /// A percentage of the crowd's sockets ends at the same time.
        case scatter(seed: UInt64, percent: UInt64)
        case freezeCrowd(seed: UInt64, percent: UInt64, milliseconds: UInt64)
        /// The channel's token is replaced by another person's.
        case become(client: Int, channel: Int, person: Int)
        case cut(client: Int)
        /// The client is disconnected for longer than the hub keeps its position, or nearly so long.
        case sleep(client: Int, seed: UInt64, milliseconds: UInt64)
        /// The client disconnects, and the hub notices it only after this time.
        case vanish(client: Int, milliseconds: UInt64)
        /// The client reads no more, and its socket stays open for this time. Half way, it ends its half of the
        /// connection.
        case finish(client: Int, milliseconds: UInt64)
        case freezeClient(client: Int, milliseconds: UInt64)
        case freezeLoop(loop: Int, milliseconds: UInt64)
        case freezeStream(milliseconds: UInt64)
        case cutStream
        /// The disk accepts this number of writes, then refuses two.
        case failWrites(after: Int)
        case failSyncs(after: Int)
        /// Opens of files fail for a number of milliseconds.
        case failOpens(milliseconds: UInt64)
        /// Reads of files fail for a number of milliseconds.
        case failReads(milliseconds: UInt64)
        /// A bit of a sealed segment is flipped for a while, then restored as if from a backup.
        case rot(seed: UInt64, milliseconds: UInt64)
        case beAway(milliseconds: UInt64)
        case loseAnswers(milliseconds: UInt64)
        case lose(ForcedLoss)
        /// The log removes segments older than this, even if a client still needs them.
        case retain(milliseconds: UInt64)
        case crash(power: Bool)
        /// The wall clock is set forward by a number of seconds; a negative number sets it back.
        case setWallClock(aheadBy: Int64)
        /// All faults end and all events arrive. Then the received events are compared with the expected ones.
        case settle
    }

    public var action: Action
    public var milliseconds: UInt64

    public var description: String { "\(milliseconds) ms, then \(action)" }
}

/// Choice of the faults that a script may contain.
public struct Weather: Sendable {
    public var faults = true
    public init() {}
}

/// Number of steps after which the faults end and the received events are checked.
private let stretchLength = 150

/// Kind of a stretch, which is a part of a script.
private enum Stretch: CaseIterable {
    /// Events of all kinds occur together.
    case stormy
    /// Events occur as in a stormy stretch but slowly, so that they meet waits of several seconds.
    case slow
    /// The database gives no answers for long, while changes and clients arrive. Other faults are left out, because
    /// they would hide losses.
    case outage
    /// Many changes are written, and many clients receive them.
    case broad
    /// Few clients join, and all leave before others join.
    case lonely

    static func next(_ random: inout SeededRandom, _ shape: Shape, _ weather: Weather) -> Stretch {
        if shape.isLonely { return .lonely }
        guard weather.faults else { return shape.hasCrowd ? .broad : .stormy }
        let usual: [Stretch] = [.stormy, .stormy, .stormy, .slow, .outage]
        return random.pick(shape.hasCrowd ? usual + [.broad, .broad, .broad, .broad, .broad] : usual)
    }

    func pause(_ random: inout SeededRandom) -> UInt64 {
        let pauses: [ClosedRange<UInt64>] = [0...0, 0...3, 1...40, 1...40, 20...400]
        return (self == .slow || self == .outage ? 5 : 1) * UInt64.random(in: random.pick(pauses), using: &random)
    }

    func action(_ place: Int, _ random: inout SeededRandom, _ shape: Shape, _ weather: Weather) -> Step.Action {
        if shape.hasCrowd, place % 10 == 3, let action = crowdsAction(&random, weather) { return action }
        if self == .broad, place % 8 != 0 {
            return place % 8 == 4 ? .say(seed: random.next()) : .write(seed: random.next())
        }
        if self == .lonely { return lonelyAction(place, &random, shape, weather) }
        if shape.isSluggish, weather.faults, place % 5 == 1 { return sluggishAction(&random, shape) }
        guard self == .outage else { return Simulator.action(&random, shape, weather) }
        // The outages repeat, so that some channels joined before an outage.
        if place % 75 == 15 { return .beAway(milliseconds: UInt64.random(in: 5_000...15_000, using: &random)) }
        return quietAction(&random, shape)
    }
}

/// Returns the steps for a seed.
public func script(seed: UInt64, steps: Int, _ weather: Weather = Weather(), _ shape: Shape? = nil) -> [Step] {
    let shape = shape ?? .usual(seed: seed)
    var random = SeededRandom(seed: seed)
    var script: [Step] = []
    for client in 0..<Shape.individuals {
        for channel in 0..<Simulation.channelsPerClient {
            script.append(
                Step(action: .join(client: client, channel: channel, seed: random.next()), milliseconds: 5))
        }
    }
    if shape.hasCrowd { script.append(Step(action: .gather(seed: random.next()), milliseconds: 100)) }
    var stretch = Stretch.stormy
    for number in 1...steps {
        let place = number % stretchLength
        if place == 1 { stretch = .next(&random, shape, weather) }
        let action = place == 0 ? .settle : stretch.action(place, &random, shape, weather)
        script.append(Step(action: action, milliseconds: stretch.pause(&random)))
    }
    script.append(Step(action: .settle, milliseconds: 10))
    return script
}

/// Returns an action that concerns many clients at the same time.
private func crowdsAction(_ random: inout SeededRandom, _ weather: Weather) -> Step.Action? {
    let (seed, percent) = (random.next(), random.pick([5, 20, 100] as [UInt64]))
    switch Int.random(in: 0..<8, using: &random) {
    case 0 where weather.faults: return .scatter(seed: seed, percent: percent)
    case 1 where weather.faults:
        return .freezeCrowd(seed: seed, percent: percent, milliseconds: random.pick([20, 200, 2_000]))
    case ..<4: return .gather(seed: seed)
    default: return nil
    }
}

/// Returns an action of a lonely stretch. In it, a client joins, changes follow, all clients leave, and changes follow
/// without listeners.
private func lonelyAction(
    _ place: Int, _ random: inout SeededRandom, _ shape: Shape, _ weather: Weather
) -> Step.Action {
    switch place % 16 {
    case ..<2:
        let channel = Int.random(in: 0..<Simulation.channelsPerClient, using: &random)
        return .join(client: shape.someClient(&random), channel: channel, seed: random.next())
    case 8: return .everybodyLeaves
    case 4, 5, 12: return action(&random, shape, weather)
    default: return .write(seed: random.next())
    }
}

/// Returns a change, or an action of a client that joins or leaves.
private func quietAction(_ random: inout SeededRandom, _ shape: Shape) -> Step.Action {
    let client = shape.someClient(&random)
    let channel = Int.random(in: 0..<Simulation.channelsPerClient, using: &random)
    let seed = random.next()
    switch Int.random(in: 0..<20, using: &random) {
    case ..<9: return .write(seed: seed)
    case 9: return seed % 8 == 0 ? .truncate(seed: seed) : .say(seed: seed)
    case ..<14: return .join(client: client, channel: channel, seed: seed)
    case ..<18: return .leave(client: client, channel: channel)
    case 18: return .memberships(seed: seed)
    default: return .become(client: client, channel: channel, person: Int(seed % 3))
    }
}

/// Returns an action of a client that reads and answers late.
private func sluggishAction(_ random: inout SeededRandom, _ shape: Shape) -> Step.Action {
    let client = shape.someClient(&random)
    let kind = random.next()
    if kind % 6 == 0 { return .finish(client: client, milliseconds: 3_000) }
    if kind % 3 == 0 { return .cut(client: client) }
    return .freezeClient(client: client, milliseconds: random.pick([500, 1_500, 2_500, 4_000]))
}

private func action(_ random: inout SeededRandom, _ shape: Shape, _ weather: Weather) -> Step.Action {
    let client = shape.someClient(&random)
    let channel = Int.random(in: 0..<Simulation.channelsPerClient, using: &random)
    let seed = random.next()
    let milliseconds = random.pick([20, 20, 200, 200, 1_000, 6_000] as [UInt64])
    switch Int.random(in: 0..<100, using: &random) {
    case ..<38: return .write(seed: seed)
    case ..<44: return .say(seed: seed)
    case 44: return .truncate(seed: seed)
    case ..<55: return .memberships(seed: seed)
    case ..<58: return .define(seed: seed)
    case ..<72: return .join(client: client, channel: channel, seed: seed)
    case ..<74: return .leave(client: client, channel: channel)
    case ..<77: return .become(client: client, channel: channel, person: Int(seed % 3))
    case 78 where weather.faults:
        return seed % 2 == 0
            ? .vanish(client: client, milliseconds: milliseconds * 3)
            : .finish(client: client, milliseconds: milliseconds * 3)
    case ..<79: return .cut(client: client)
    case _ where !weather.faults: return .write(seed: seed)
    case ..<82: return .freezeClient(client: client, milliseconds: milliseconds)
    case ..<86:
        return .freezeLoop(loop: Int(seed % UInt64(Simulation.loopCount)), milliseconds: min(milliseconds, 2_000))
    case ..<88: return .freezeStream(milliseconds: min(milliseconds, 2_000))
    case ..<90 where shape.failsReads:
        // The failure lasts as long as a crowd of sockets may hold all descriptors, or a disk may not respond.
        switch seed % 4 {
        case 0: return .failReads(milliseconds: milliseconds)
        case 1: return .rot(seed: seed, milliseconds: milliseconds * 5)
        default: return .failOpens(milliseconds: milliseconds)
        }
    case ..<90: return .cutStream
    case 90: return .failWrites(after: Int(seed % 5))
    case 91: return .failSyncs(after: Int(seed % 3))
    case ..<94: return .beAway(milliseconds: milliseconds * random.pick([1, 1, 3]))
    case ..<96: return .loseAnswers(milliseconds: milliseconds)
    case 96: return .lose(random.pick(ForcedLoss.allCases))
    case 97 where seed % 3 == 1: return .retain(milliseconds: milliseconds * 2)
    case 97 where seed % 3 == 0: return .crash(power: seed % 2 == 0)
    case 98: return .sleep(client: client, seed: seed, milliseconds: random.pick([60_000, 130_000, 300_000]))
    case 99... where shape.isUnsteady:
        return .setWallClock(aheadBy: random.pick([-86_400, -3_600, -130, 0, 5, 130, 3_600, 86_400]))
    default: return .write(seed: seed)
    }
}
