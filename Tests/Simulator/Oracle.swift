import Change

/// Checker that computes, from the model alone, the events that each channel must receive. It reports errors in the
/// received ones.
///
/// A channel receives the changes committed after the reply to its join: in commit order, then in the transaction's
/// order, each once, with the right values. A missing change is excused only if the client was told that changes may be
/// missing, or if the channel ended. Nothing excuses a change that is repeated, out of order, wrong, or sent to a
/// person who may not see it.
final class Oracle: Hearing {
    /// Facts about the log that are certain at a moment.
    struct Position {
        var durable: LSN
        var oldestKept: LSN
        /// First offset in the log.
        var oldestOffset: UInt64?
        /// Current end of the log.
        var end: LogPlace?
        /// End of the log when the hub started; nil if the hub had not started.
        var start: LogPlace?
    }

    private struct Key {
        var client: Int
        var channel: Int
    }

    /// Expectations about one channel of one client.
    private final class Line {
        var listening: Listening?
        /// Last position that the hub sent since the channel joined.
        var lastPosition: LogPlace?
        var mark: Mark?
        /// Former listeners whose sockets ended and whose clients may return.
        var absent: [AbsentKey: Absent] = [:]
        /// Former listeners whose clients returned a moment ago. After a power failure, the hub may have forgotten the
        /// return.
        var returned: [(key: AbsentKey, absent: Absent, at: UInt64)] = []
        /// Virtual times in nanoseconds until which a former listener still counts as absent. A client that returns
        /// before the hub has noticed the end of its socket may look like a second client.
        var seconds: [AbsentKey: UInt64] = [:]
    }

    private final class Listening {
        var person: String
        /// Audience of the channel: all channels with the same bindings and the same person.
        var audience: Audience
        /// Persons to whom the channel belonged before, until the hub has read the newest token.
        var former: [String] = []
        let seat: Seat
        /// Durable position of the log when the join was sent.
        fileprivate(set) var durable: LSN
        /// Epoch of the log when the join was sent.
        var epoch: UInt64?
        let joinedAt: UInt64
        /// Durable position of the log when the join was sent, even if the client resumes from an earlier one.
        let durableAtJoin: LSN
        /// Commits up to this number may arrive or not; nil until the join was answered.
        var optionalThrough: Int?
        /// The same limit for the database's messages to the topic, if it is later.
        var saidOptionalTo = 0
        var isSubscribed = false
        /// True after the client sent another join of the channel on the same socket.
        var joinsAgain = false
        var reached = Reached()
        /// Numbers of the received changes, in the order of their arrival.
        var heard: [Int] = []
        /// Numbers of the database's messages to the topic, in the order of their arrival.
        var said: [Int] = []
        /// Number of commits when the hub sent the last truncation notice, by table.
        var truncations: [ModelTable: Int] = [:]
        /// Number of commits when the hub reported a loss. Changes of these commits may be missing.
        var toldAt = 0
        /// True if history had a gap while the channel was joined: the hub must report the gap.
        var isOwedGap = false
        /// Gaps that the hub has not reported to the client yet. Until it does, the client may receive the changes
        /// after a gap's end once more, in order.
        var gaps: [Gap] = []
        /// Position from which the channel asked to resume, with the channel's state at that position.
        var resumed: Mark?
        /// Former listener of a client that returns without a position.
        var returning: Absent?
        var topic = ""
        /// Newest pings. While there are few, the first element is the channel's beginning. The hub may not know the
        /// answer to the newest ping yet.
        private var pings = [Ping(Reached(), at: 0, rests: 0)]
        private var isPastBeginning = false
        /// All gaps that the hub reported to the client. If the client resumes from before a gap, the hub must report
        /// the gap again.
        var gapsTold: [Gap] = []

        init(_ person: String, _ audience: Audience, _ seat: Seat, _ durable: LSN, at joinedAt: UInt64) {
            self.joinedAt = joinedAt
            durableAtJoin = durable
            self.person = person
            self.audience = audience
            self.seat = seat
            self.durable = durable
        }

        func hasBeenTold(of gap: Gap) {
            gapsTold.append(gap)
            for place in pings.indices { pings[place].gapsToldSince.append(gap) }
        }

        func wasPinged(at: UInt64, rests: Int) {
            pings.append(Ping(reached, at: at, rests: rests))
            guard pings.count > Self.pingsKept else { return }
            pings.removeFirst()
            isPastBeginning = true
        }

        private static let pingsKept = 6

        /// Ping that the client certainly answered, with the state that the hub therefore knows as received. The hub
        /// pings again only after an answer.
        var known: Ping { pings.count > 1 ? pings[pings.count - 2] : pings[0] }

        func begins() {
            pings = [Ping(reached, at: 0, rests: 0)]
            isPastBeginning = false
        }

        func heardNoFurther(than number: Int) {
            reached.isNoFurther(than: number)
            for place in pings.indices { pings[place].reached.isNoFurther(than: number) }
        }

        /// Reduces the known state to the one that the hub had certainly written to the disk before its process ended.
        func hubEnded(at now: UInt64, rests: Int) {
            let last = pings.indices.dropFirst().last {
                pings[$0].at + Oracle.surelyWritten <= now && pings[$0].rests + Oracle.surelyNoticed <= rests
            }
            var written = last.map { pings[$0 - 1] } ?? pings[0]
            if last == nil, isPastBeginning {
                written.reached = Reached()
                written.gapsToldSince = gapsTold
            }
            pings = [written]
        }

        /// Continues from the mark as if the client had never been disconnected.
        func goOn(from mark: Mark) {
            durable = mark.durable
            optionalThrough = mark.optionalThrough
            reached = mark.reached
            heard = mark.heard
            said = mark.said
            truncations = mark.truncations
            toldAt = mark.toldAt
        }
    }

    /// Numbers of the last received change and message.
    private struct Reached {
        var change = Oracle.nothing
        var message = Oracle.nothing

        mutating func isNoFurther(than number: Int) {
            change = min(change, number)
            message = min(message, number)
        }
    }

    /// State of a channel when the client answered a ping.
    private struct Ping {
        var reached: Reached
        var gapsToldSince: [Gap] = []
        let at: UInt64
        let rests: Int

        init(_ reached: Reached, at: UInt64, rests: Int) {
            self.reached = reached
            self.at = at
            self.rests = rests
        }
    }

    /// State of a channel when the hub sent it a position.
    private struct Mark {
        var place: LogPlace
        var durable: LSN
        var optionalThrough: Int
        var reached: Reached
        var heard: [Int]
        var said: [Int]
        var truncations: [ModelTable: Int]
        var toldAt: Int
    }

    /// Properties by which the hub recognizes a returning client.
    private struct AbsentKey: Hashable {
        var person: String
        var topic: String
        var seat: Seat
    }

    private final class Absent {
        let listening: Listening
        /// True if the hub may have forgotten this client.
        var isUncertain: Bool
        /// True if an equal client left earlier and did not return. This client may then resume at that client's
        /// position.
        let isOneOfTwo: Bool
        let at: UInt64
        /// Last commit of which nothing is owed to the person; nil for the listening's own limit.
        let optionalThrough: Int?
        /// Number of times that the hub's loops had come to rest by then.
        var rests: Int

        init(
            _ listening: Listening, isUncertain: Bool, isOneOfTwo: Bool, optionalThrough: Int?, at: UInt64, rests: Int
        ) {
            self.rests = rests
            self.optionalThrough = optionalThrough
            self.listening = listening
            self.isUncertain = isUncertain
            self.isOneOfTwo = isOneOfTwo
            self.at = at
        }
    }

    /// Duration in nanoseconds for which the hub certainly remembers a disconnected client.
    private static let surelyRemembered: UInt64 = 100_000_000_000
    /// Duration in nanoseconds after which the hub has certainly forgotten a disconnected client.
    private static let surelyForgotten: UInt64 = 150_000_000_000
    /// Number of rests of a loop after which it has certainly noticed every earlier event.
    private static let surelyNoticed = 8
    /// Duration in nanoseconds after which the hub has certainly written a client's position to the disk.
    private static let surelyWritten: UInt64 = 3_000_000_000
    /// Duration in nanoseconds after which the hub has certainly written a client's return to the disk. The hub writes
    /// it with the first receipt after the return.
    private static let surelyReturned: UInt64 = 5_000_000_000

    /// Duration in nanoseconds by which a loop may lag behind the log. It may still send a message that the database
    /// has deleted.
    private static let longestLag: UInt64 = 5_000_000_000

    private let database: ModelDatabase
    private let position: () -> Position
    private let ledger: Ledger
    /// Expectations by client and channel.
    private var lines: [[Line?]] = []
    private(set) var complaints: [String] = []
    private(set) var tally = Tally()
    /// Number before that of the first change.
    fileprivate static let nothing = -1
    /// True if a part of the log is damaged, or was so a moment ago.
    var mayBeUnreadable: () -> Bool = { false }
    /// True if the hub's ledger shows that the hub sent the change at an offset to a topic's channel.
    var isInLedger: ((String, UInt64) -> Bool)?
    /// Called with the hash of each insert that a topic's client reads, and the insert's offset if the message
    /// contained it.
    var reads: ((_ topic: String, _ hash: UInt64, _ offset: UInt64?) -> Void)?
    /// Called with a description of every event.
    var trace: ((String) -> Void)?
    /// Hash of all events in their order.
    private(set) var fingerprint: UInt64 = 0xcbf2_9ce4_8422_2325

    struct Tally {
        var deliveries = 0
        /// Received messages of the database.
        var said = 0
        var joins = 0
        var told = 0
        var toldOfGaps = 0
        var excused = 0
        var refused = 0
        /// Joins that resumed from the requested position.
        var resumed = 0
        /// Joins that asked to resume and could not.
        var refetched = 0
        /// Joins of returning clients that name no position.
        var returned = 0
        /// Joins of channels that their clients had joined already.
        var rejoined = 0
    }

    /// All gaps of the history.
    private var gaps: [Gap] = []
    private let now: () -> UInt64
    private let rests: () -> Int

    init(
        _ database: ModelDatabase, now: @escaping () -> UInt64 = { 0 }, rests: @escaping () -> Int = { 0 },
        _ position: @escaping () -> Position
    ) {
        self.now = now
        self.rests = rests
        self.database = database
        self.position = position
        ledger = Ledger(database, now: now)
    }

    private func line(_ key: Key) -> Line {
        while lines.count <= key.client {
            lines.append([Line?](repeating: nil, count: Simulation.channelsPerClient))
        }
        if let line = lines[key.client][key.channel] { return line }
        let line = Line()
        lines[key.client][key.channel] = line
        return line
    }

    private func mix(_ number: UInt64) { fingerprint = (fingerprint ^ number) &* 0x100_0000_01b3 }

    private func mix(_ text: String) { for byte in text.utf8 { mix(UInt64(byte)) } }

    private func complain(_ text: String) {
        complaints.append(text)
        trace?("wrong: \(text)")
    }

    // MARK: Receiving

    func joins(
        _ seat: Seat, as person: String, on channel: Int, of client: Int, from place: LogPlace?, topic: String = ""
    ) {
        let line = line(Key(client: client, channel: channel))
        let listening = Listening(person, ledger.audience(seat, person), seat, position().durable, at: now())
        listening.topic = topic
        listening.epoch = position().end?.epoch
        if let place { listening.resumed = line.mark.flatMap { $0.place == place ? $0 : nil } }
        line.listening = listening
        line.lastPosition = nil
    }

    func joins(_ seat: Seat, as person: String, on channel: Int, of client: Int, topic: String) {
        let key = Key(client: client, channel: channel)
        let listening = Listening(person, ledger.audience(seat, person), seat, position().durable, at: now())
        listening.topic = topic
        listening.isSubscribed = seat.bindings.isEmpty
        let line = line(key)
        let absentKey = AbsentKey(person: person, topic: topic, seat: seat)
        listening.returning = line.absent[absentKey]
        if let returning = listening.returning {
            if now() - returning.at > Self.surelyRemembered { returning.isUncertain = true }
        }
        line.listening = listening
        trace?("client \(client) channel \(channel): joins as \(person) on \(topic)")
    }

    func joinsAgain(on channel: Int, of client: Int) {
        line(Key(client: client, channel: channel)).listening?.joinsAgain = true
    }

    /// Records a repeated join. The channel continues after the events that it received, so most expectations stay.
    /// Messages after changes that waited for a policy's result arrive again.
    private func hasJoinedAgain(_ listening: Listening) {
        tally.joins += 1
        tally.rejoined += 1
        listening.joinsAgain = false
        listening.reached.message = min(listening.reached.message, listening.reached.change)
    }

    private func wasCut(_ listening: Listening, _ line: Line) {
        line.listening = nil
        if listening.optionalThrough == nil, let returning = listening.returning {
            // The hub may have accepted the join, and must then notice the end of its socket.
            returning.rests = rests()
            return
        }
        // The hub may not have read the token by which the channel became another person's.
        for person in listening.former + [listening.person] {
            let isUncertain = listening.optionalThrough == nil || !listening.former.isEmpty
            let absentKey = AbsentKey(person: person, topic: listening.topic, seat: listening.seat)
            // A former listener whose client did not return as the same person still counts as absent, even after
            // another client has returned.
            if line.absent[absentKey] != nil { line.seconds[absentKey] = now() + Self.surelyForgotten }
            let isOneOfTwo = line.seconds[absentKey, default: 0] > now()
            line.absent[absentKey] = Absent(
                listening, isUncertain: isUncertain, isOneOfTwo: isOneOfTwo,
                // The hub did not confirm that the channel became this person's: before, it was another's.
                optionalThrough: person == (listening.former.first ?? person) ? nil : database.lastCommit,
                at: now(), rests: rests())
        }
    }

    /// Records the end of the hub's process. If the power failed or the directory was lost, the hub may have forgotten
    /// its clients. Otherwise it knows everything that it had written.
    func hubEnded(power: Bool, hasForgotten: Bool = false) {
        for case let line? in lines.joined() {
            for (key, absent) in line.absent {
                absent.isUncertain = absent.isUncertain || power || hasForgotten
                absent.listening.hubEnded(at: now(), rests: rests())
                // The hub may remember a former listener that never returned for the full grace period.
                if power { line.seconds[key] = now() + Self.surelyForgotten }
            }
            if power { powerFailed(line) }
        }
    }

    /// Counts each former listener that returned a moment ago as absent again, unless its socket ended since.
    private func powerFailed(_ line: Line) {
        for (key, absent, at) in line.returned where now() - at < Self.surelyReturned && line.absent[key] == nil {
            line.absent[key] = Absent(
                absent.listening, isUncertain: true, isOneOfTwo: true, optionalThrough: absent.optionalThrough,
                at: absent.at,
                rests: absent.rests)
        }
        line.returned = []
    }

    /// Records a gap in the history. The hub must tell joined channels, which may receive the changes after the gap's
    /// end once more.
    func hasGap(_ gap: Gap) {
        gaps.append(gap)
        trace?("history has a gap from \(gap.from) to \(gap.to): \(gap.reason.rawValue)")
        for case let line? in lines.joined() {
            if let listening = line.listening { hasGap(gap, listening) }
            for absent in line.absent.values { hasGap(gap, absent.listening) }
        }
    }

    private func hasGap(_ gap: Gap, _ listening: Listening) {
        listening.durable = min(listening.durable, gap.to)
        listening.gaps.append(gap)
        if listening.optionalThrough != nil { listening.isOwedGap = true }
    }

    private func wasTold(_ text: String, _ listening: Listening) {
        tally.told += 1
        listening.toldAt = database.lastCommit
        if listening.isOwedGap { tally.toldOfGaps += 1 }
        listening.isOwedGap = false
        let isOf = { (gap: Gap) in text.contains("(\(gap.reason.rawValue))") }
        // After a notice with another reason, the channel may still receive changes from before the gap.
        let told = listening.gaps.firstIndex(where: isOf)
        ledger.note()
        // A channel on a lagging loop receives messages on both sides of a gap that is older than its join.
        if told == nil, let former = gaps.last(where: isOf) {
            listening.reached.message = min(listening.reached.message, ledger.firstNumber(behind: former.to) - 1)
        }
        guard let end = listening.gaps.map(\.to).min() else { return }
        if let told { listening.hasBeenTold(of: listening.gaps.remove(at: told)) }
        let first = ledger.firstNumber(behind: end)
        listening.heardNoFurther(than: first - 1)
    }

    /// Continues a client as if it had never been disconnected, from the oldest state that the hub may know as
    /// received. The client receives everything since then, or a notice that changes may be missing.
    private func goOn(_ listening: Listening, as absent: Absent) {
        let former = absent.listening
        let reached = absent.isOneOfTwo ? Reached() : former.known.reached
        listening.goOn(
            from: Mark(
                place: LogPlace(epoch: 0, offset: 0), durable: absent.isOneOfTwo ? LSN(0) : former.durable,
                // A client without a reply to its join may expect no more than a new client.
                optionalThrough: absent.optionalThrough ?? former.optionalThrough ?? database.lastCommit,
                reached: reached,
                heard: former.heard,
                said: former.said,
                truncations: former.truncations, toldAt: former.toldAt))
        // If the hub may have forgotten the client, a notice is enough.
        if absent.isUncertain { listening.reached = Reached() }
        listening.isOwedGap = former.isOwedGap
        let isFromAnywhere = absent.isOneOfTwo || absent.isUncertain
        let toldAgain = isFromAnywhere ? former.gapsTold : former.known.gapsToldSince
        listening.gaps = toldAgain + former.gaps + listening.gaps
        listening.gapsTold = former.gapsTold.filter { !toldAgain.contains($0) }
        // The hub has one position for changes and messages. So messages arrive again if they follow changes that
        // waited for a policy's result.
        listening.reached.message = min(listening.reached.message, listening.reached.change)
        listening.begins()
        tally.returned += 1
    }

    private func hasJoined(_ recovery: Recovery?, on line: Line, _ listening: Listening, _ who: () -> String) {
        tally.joins += 1
        listening.optionalThrough = database.lastCommit
        if let returning = listening.returning {
            goOn(listening, as: returning)
            // From here on, the former listener is at this listening's position.
            line.absent = line.absent.filter { $0.value !== returning }
            let key = AbsentKey(person: listening.person, topic: listening.topic, seat: listening.seat)
            line.returned = line.returned.filter { now() - $0.at < Self.surelyReturned } + [(key, returning, now())]
        }
        switch (recovery, listening.resumed) {
        case (nil, nil): break
        case (.recovered?, let mark?):
            tally.resumed += 1
            if let epoch = listening.epoch, epoch != mark.place.epoch {
                complain("\(who()) went on at \(mark.place), and the log's epoch was \(epoch)")
            }
            listening.goOn(from: mark)
            // The topic is new, so the number of its messages before the mark is unknown.
            listening.saidOptionalTo = database.lastCommit
            listening.said = []
            listening.reached.message = Self.nothing
        case (.refused(let reason)?, let mark?):
            tally.refetched += 1
            let isSameEpoch = position().end?.epoch == mark.place.epoch
            let isKept = isSameEpoch && position().oldestOffset.map { $0 <= mark.place.offset } ?? false
            if reason == "log_unreadable"
                ? !mayBeUnreadable()
                : reason == "unknown_position" || isSameEpoch && reason == "epoch_changed" || isKept
            {
                complain("\(who()) could not go on at \(mark.place): \(reason)")
            }
        default: complain("\(who()) was told of a recovery that it did not ask for, or the other way round")
        }
    }

    func becomes(_ person: String, on channel: Int, of client: Int) {
        guard let listening = line(Key(client: client, channel: channel)).listening else { return }
        listening.former.append(listening.person)
        listening.isSubscribed = listening.seat.bindings.isEmpty
        listening.person = person
        listening.audience = ledger.audience(listening.seat, person)
    }

    func hasGone(_ channel: Int, of client: Int) {
        line(Key(client: client, channel: channel)).listening = nil
    }

    func heard(_ what: Heard, on channel: Int, of client: Int) {
        let line = line(Key(client: client, channel: channel))
        guard let listening = line.listening else { return }
        mix(UInt64(client << 8 | channel))
        trace?("client \(client) channel \(channel): \(what.summary)")
        func who() -> String { "client \(client) channel \(channel) (\(listening.person), \(listening.seat.topic))" }
        if case .change(let change, let passage) = what {
            tally.deliveries += 1
            mix(change.trail)
            // All clients read the same bytes of an insert.
            if change.operation == "INSERT" {
                reads?(listening.topic, change.trail, passage.map { $0.place.offset - 1 })
            }
            if let passage {
                check(passage, on: line, who)
                if isInLedger?(listening.topic, passage.place.offset - 1) == false {
                    complain("\(who()) heard of a change before \(passage.place) that the ledger has not sent it")
                }
            }
            return check(change, listening, who)
        }
        mix(what.summary)
        heard(what, on: line, listening, who)
    }

    private func heard(_ what: Heard, on line: Line, _ listening: Listening, _ who: () -> String) {
        if listening.optionalThrough == nil, what.followsAnswer {
            complain("\(who()) heard before its join was answered: \(what.summary)")
        }
        switch what {
        case .joined where listening.joinsAgain: hasJoinedAgain(listening)
        case .joined(let recovery): hasJoined(recovery, on: line, listening, who)
        case .subscribed: listening.isSubscribed = true
        case .became:
            guard !listening.former.isEmpty else { break }
            listening.former.removeFirst()
            listening.optionalThrough = database.lastCommit
        case .refused:
            tally.refused += 1
            line.listening = nil
        case .position(let place):
            checkPosition(place, of: line, who)
            guard listening.former.isEmpty, let optionalThrough = listening.optionalThrough else {
                return line.mark = nil
            }
            line.mark = Mark(
                place: place, durable: listening.durable, optionalThrough: optionalThrough, reached: listening.reached,
                heard: listening.heard, said: listening.said, truncations: listening.truncations,
                toldAt: listening.toldAt)
        case .said(let version): check(said: version, listening, who)
        case .truncated(let table): check(truncated: table, listening, who)
        case .told(let text): wasTold(text, listening)
        case .closed: line.listening = nil
        case .cut: wasCut(listening, line)
        case .pinged: listening.wasPinged(at: now(), rests: rests())
        case .change: preconditionFailure("a change is checked elsewhere")
        }
    }

    /// Checks a position that the hub sent. It must not be beyond the log's end, before the channel's earlier position,
    /// or before the log's end at the hub's start. A client that resumed there would receive repeated changes.
    private func checkPosition(_ place: LogPlace, of line: Line, _ who: () -> String) {
        let position = position()
        let (start, end) = (position.start, position.end)
        if let end, end.epoch == place.epoch, end.offset < place.offset {
            complain("\(who()) was told of \(place), and the log ends at \(end)")
        }
        for before in [start, line.lastPosition] {
            if let before, before.epoch == place.epoch, place.offset < before.offset {
                complain("\(who()) was told of \(place) after \(before)")
            }
        }
        line.lastPosition = place
    }

    /// Checks that a change is not beyond the log's end, follows the channel's previous position, and names that
    /// position.
    private func check(_ passage: Passage, on line: Line, _ who: () -> String) {
        if let end = position().end, end.epoch == passage.place.epoch, end.offset < passage.place.offset {
            complain("\(who()) heard of a change at \(passage.place), and the log ends at \(end)")
        }
        guard passage.place.epoch == passage.previous.epoch else { return }
        if passage.place.offset < passage.previous.offset {
            complain("\(who()) heard of a change at \(passage.place) behind one at \(passage.previous)")
        }
        if let last = line.lastPosition, last.epoch == passage.place.epoch, passage.place.offset < last.offset {
            complain("\(who()) heard of a change at \(passage.place) after it was told of \(last)")
        }
    }

    // MARK: Received events

    private func check(_ heard: HeardChange, _ listening: Listening, _ who: () -> String) {
        ledger.note()
        let said = { "\(heard.operation) \(heard.table) \(heard.record) \(heard.old)" }
        guard listening.optionalThrough != nil else {
            return complain("\(who()) heard before its join was answered: \(said())")
        }
        guard let number = ledger.number(of: heard) else {
            return complain("\(who()) heard what never was: \(said())")
        }
        let what = { "\(self.ledger.name(of: number)) \(said())" }
        if number <= listening.reached.change { complain("\(who()) heard twice or out of order: \(what())") }
        listening.reached.change = max(number, listening.reached.change)
        listening.heard.append(number)
        if ledger.commit(of: number).end <= listening.durable {
            complain("\(who()) heard what the log had before its join: \(what())")
        }
        // Equal bytes are just as correct for another channel of the same audience.
        if listening.former.isEmpty, listening.audience.isSound(heard, number) { return }
        let before = complaints.count
        checkContent(heard, number, listening, who, what)
        if listening.former.isEmpty, complaints.count == before { listening.audience.found(heard, number) }
    }

    private func checkContent(
        _ heard: HeardChange, _ number: Int, _ listening: Listening, _ who: () -> String, _ what: () -> String
    ) {
        let (commit, change) = (ledger.commit(of: number), ledger.change(number))
        if heard.errors != nil { complain("\(who()) heard errors: \(what())") }
        guard change.operation.rawValue == heard.operation else {
            return complain("\(who()) heard another operation: \(what())")
        }
        let persons = [listening.person] + listening.former
        let isForNobody = persons.allSatisfy { ledger.interest(of: listening.seat, $0, in: number) == .none }
        if isForNobody { complain("\(who()) heard what is not for it: \(what())") }
        if let new = change.new, !heard.new.isSame(as: new, isWhole: true) {
            complain("\(who()) heard other values than \(new): \(what())")
        }
        guard let old = change.old else { return }
        let saw = ledger.rules(since: commit).contains { rules in
            persons.contains { ModelDatabase.sees($0, old, of: change.table, rules, commit.members) }
        }
        if !saw, heard.before.saysMore || heard.before.id ?? change.new?.id != change.new?.id {
            complain("\(who()) heard of an old row that it may not see: \(what())")
        }
        if !heard.before.isSame(as: old, isWhole: false) { complain("\(who()) heard other old values: \(what())") }
    }

    /// Checks a message of the database. Every joined channel of the topic must receive it once, in order. A lagging
    /// loop may also send older messages to channels that joined later.
    private func check(said version: Int, _ listening: Listening, _ who: () -> String) {
        ledger.note()
        tally.said += 1
        guard listening.optionalThrough != nil else {
            return complain("\(who()) heard before its join was answered: said \(version)")
        }
        guard let number = ledger.number(ofVersion: version), ledger.change(number).table == .messages else {
            return complain("\(who()) heard what was never said: \(version)")
        }
        let what = { "\(self.ledger.name(of: number)) said \(version)" }
        if "realtime:" + (ledger.change(number).new?.owner ?? "") != listening.topic {
            complain("\(who()) heard what was said to others: \(what())")
        }
        if number <= listening.reached.message { complain("\(who()) heard twice or out of order: \(what())") }
        if let deletion = ledger.deletion(ofMessage: number), deletion.end <= listening.durableAtJoin,
            deletion.at + Self.longestLag < listening.joinedAt
        {
            complain("\(who()) heard what had been deleted before it came back: \(what())")
        }
        listening.reached.message = max(number, listening.reached.message)
        listening.said.append(number)
    }

    /// Checks a truncation notice. The truncation may be older than the join, because its only effect is that the
    /// client fetches once more.
    private func check(truncated name: String, _ listening: Listening, _ who: () -> String) {
        ledger.note()
        guard let table = ModelTable.subscribed.first(where: { $0.name == name }),
            ledger.truncations(for: listening.seat, from: 0).contains(where: { ledger.change($0).table == table })
        else { return complain("\(who()) was told that \(name) was emptied, of which it hears nothing") }
        listening.truncations[table] = database.lastCommit
    }

    // MARK: Missing events

    /// Checks that every channel received everything that it must. Must be called after all events have arrived.
    func settle() {
        ledger.note()
        let oldest = position().oldestKept
        for (client, lines) in lines.enumerated() {
            for (channel, line) in lines.enumerated() {
                guard let listening = line?.listening else { continue }
                settle(
                    listening, "client \(client) channel \(channel) (\(listening.person), \(listening.seat.topic))",
                    oldest)
            }
        }
    }

    /// Adds the findings of other checks.
    func complain(of findings: [String]) { for finding in findings { complain(finding) } }

    private func settle(_ listening: Listening, _ who: String, _ oldest: LSN) {
        guard let first = listening.optionalThrough else { return complain("\(who) was never answered") }
        if !listening.isSubscribed { complain("\(who) was never subscribed") }
        if listening.isOwedGap { complain("\(who) was never told that history has a gap") }
        let least = ledger.firstNumber(after: first)
        let changes = Self.missing(of: ledger.due(listening.audience), from: least, in: listening.heard)
            .filter { !dependsOnTheLog($0, oldest) }
        let leastSaid = ledger.firstNumber(after: max(first, listening.saidOptionalTo))
        let said = Self.missing(of: ledger.said(to: listening.topic), from: leastSaid, in: listening.said)
            .filter { ledger.deletion(ofMessage: $0) == nil }
        let truncations = ledger.truncations(for: listening.seat, from: least).filter {
            listening.truncations[ledger.change($0).table, default: 0] < ledger.commit(of: $0).number
        }
        for number in changes + said + truncations {
            if ledger.commit(of: number).number <= listening.toldAt {
                tally.excused += 1
            } else {
                complain("\(who) did not hear \(ledger.name(of: number)) \(ledger.change(number))")
            }
        }
        listening.optionalThrough = database.lastCommit
        listening.heard = []
        listening.said = []
    }

    /// Returns the due numbers from `least` on that were not received.
    private static func missing(of due: [Int], from least: Int, in heard: [Int]) -> [Int] {
        let heard = heard.sorted()
        var missing: [Int] = []
        var (place, next) = (due.partitioningIndex(least), 0)
        while place < due.count {
            while next < heard.count, heard[next] < due[place] { next += 1 }
            if next == heard.count || heard[next] != due[place] { missing.append(due[place]) }
            place += 1
        }
        return missing
    }

    /// True for a delete that names its row by the key only. The hub can send it only if the log still has that row.
    private func dependsOnTheLog(_ number: Int, _ oldest: LSN) -> Bool {
        let (change, commit) = (ledger.change(number), ledger.commit(of: number))
        guard change.operation == .delete, let old = change.old, commit.rules.isNamedByKey(change.table) else {
            return false
        }
        guard let writing = ledger.number(ofVersion: old.version) else { return true }
        return ledger.commit(of: writing).end <= oldest || !ledger.commit(of: writing).isPublished
    }
}
