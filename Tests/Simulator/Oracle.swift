import Change

/// Checker of the changes that each channel receives, by the model alone.
///
/// A channel must receive the changes that are committed after the reply to its join: in the order of commits, within a
/// transaction in their order, each once, with its values. A missing change is excused only if the client was told that
/// something may be missing, or if its channel ended. No excuse exists for a change that is repeated, out of order,
/// wrong, or sent to a person who may not see it.
final class Oracle: Hearing {
    /// Part of the log that is certain.
    struct Position {
        var durable: LSN
        var oldestKept: LSN
        /// First offset that the log still has.
        var oldestOffset: UInt64?
        /// Ends of the log, now and when the hub started; nil if the log had not begun.
        var end: LogPlace?
        var start: LogPlace?
    }

    private struct Key {
        var client: Int
        var channel: Int
    }

    /// State of one channel of one client.
    private final class Line {
        var listening: Listening?
        /// Position that the channel was told last since its join.
        var lastPosition: LogPlace?
        var mark: Mark?
        /// Channels that were cut and may come back.
        var absent: [AbsentKey: Absent] = [:]
        /// Times until which another channel of the same kind may still be away. A client that returned before the hub
        /// noticed the cut may count as a second one.
        var seconds: [AbsentKey: UInt64] = [:]
    }

    private final class Listening {
        var person: String
        /// Changes owed to all channels with the same bindings and person.
        var audience: Audience
        /// Former persons of the channel, until the hub has read the next person's token.
        var former: [String] = []
        let seat: Seat
        /// Position up to which the log was durable when the client sent the join.
        fileprivate(set) var durable: LSN
        /// Epoch of the log when the client sent the join.
        var epoch: UInt64?
        /// Last commit that may or may not arrive; nil until the join is answered.
        var optionalTo: Int?
        /// Last commit whose messages to the topic may or may not arrive, if it is later than `optionalTo`.
        var saidOptionalTo = 0
        var isSubscribed = false
        /// True while the client has sent its join again on its own socket, without an answer yet.
        var joinsAgain = false
        var reached = Reached()
        /// Numbers of the received changes, in the order of arrival.
        var heard: [Int] = []
        /// Numbers of the received messages of the database, in the order of arrival.
        var said: [Int] = []
        /// Number of commits when the channel was told of a table's truncation.
        var truncations: [ModelTable: Int] = [:]
        /// Number of commits when the channel was last told of a loss. Earlier changes may be missing.
        var toldAt = 0
        /// True if a gap arose while the channel was there and the hub has yet to tell it.
        var isOwedGap = false
        /// Gaps that the channel has not been told of, in order. After each, the channel may receive changes again.
        var gaps: [Gap] = []
        /// State at the position from which the channel asked to resume.
        var resumed: Mark?
        /// Former state of a plain client's channel, before a cut.
        var returning: Absent?
        var topic = ""
        /// Latest pings, and the start of the channel while there are few. The hub may not know the answer to the
        /// latest one.
        private var pings = [Ping(Reached(), at: 0, rests: 0)]
        private var isPastBeginning = false
        /// All gaps that the channel was told of. A channel that resumes from before a gap is told again.
        var gapsTold: [Gap] = []

        init(_ person: String, _ audience: Audience, _ seat: Seat, _ durable: LSN) {
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

        /// Latest state that the hub certainly knows: it sends a ping only after the answer to the previous one.
        var known: Ping { pings.count > 1 ? pings[pings.count - 2] : pings[0] }

        func begins() {
            pings = [Ping(reached, at: 0, rests: 0)]
            isPastBeginning = false
        }

        func heardNoFurther(than number: Int) {
            reached.isNoFurther(than: number)
            for place in pings.indices { pings[place].reached.isNoFurther(than: number) }
        }

        /// Falls back to the state that the ended hub had surely written down.
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

        /// Resumes from a mark as if the channel had never been away.
        func goOn(from mark: Mark) {
            durable = mark.durable
            optionalTo = mark.optionalTo
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

    /// Ping of the hub, by which it learns what the client has received.
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

    /// State of a channel when it was told that it had received everything up to a place.
    private struct Mark {
        var place: LogPlace
        var durable: LSN
        var optionalTo: Int
        var reached: Reached
        var heard: [Int]
        var said: [Int]
        var truncations: [ModelTable: Int]
        var toldAt: Int
    }

    /// Key by which the hub recognises a returning client.
    private struct AbsentKey: Hashable {
        var person: String
        var topic: String
        var seat: Seat
    }

    private final class Absent {
        let listening: Listening
        /// True if the hub may have forgotten the channel.
        var isUncertain: Bool
        /// True if another channel of the same kind is still away. The hub may resume this one from that one's state.
        let isOneOfTwo: Bool
        let at: UInt64
        /// Number of rests of the hub's loops when the channel was cut.
        var rests: Int

        init(_ listening: Listening, isUncertain: Bool, isOneOfTwo: Bool, at: UInt64, rests: Int) {
            self.rests = rests
            self.listening = listening
            self.isUncertain = isUncertain
            self.isOneOfTwo = isOneOfTwo
            self.at = at
        }
    }

    /// Nanoseconds for which the hub surely remembers a gone client.
    private static let surelyRemembered: UInt64 = 100_000_000_000
    /// Nanoseconds after which the hub has surely forgotten a gone client.
    private static let surelyForgotten: UInt64 = 150_000_000_000
    /// Number of rests after which a loop has surely noticed everything earlier.
    private static let surelyNoticed = 8
    /// Nanoseconds after which the hub has surely written down what it knew.
    private static let surelyWritten: UInt64 = 3_000_000_000

    private let database: ModelDatabase
    private let position: () -> Position
    private let ledger: Ledger
    /// Lines by client and channel.
    private var lines: [[Line?]] = []
    private(set) var complaints: [String] = []
    private(set) var tally = Tally()
    /// Number before the first change.
    fileprivate static let nothing = -1
    /// True if a part of the log is damaged, or was a moment ago.
    var mayBeUnreadable: () -> Bool = { false }
    /// True if the hub's own account says that a topic's channel was sent the change at an offset.
    var isInLedger: ((String, UInt64) -> Bool)?
    /// Callback for every received event.
    var trace: ((String) -> Void)?
    /// Hash of all received events, in order.
    private(set) var fingerprint: UInt64 = 0xcbf2_9ce4_8422_2325

    struct Tally {
        var deliveries = 0
        /// Messages of the database.
        var said = 0
        var joins = 0
        var told = 0
        var toldOfGaps = 0
        var excused = 0
        var refused = 0
        /// Joins that resumed at the requested position, and joins that did not.
        var resumed = 0
        var refetched = 0
        /// Joins of plain clients that came back.
        var returned = 0
        /// Joins of channels that their clients already had.
        var rejoined = 0
    }

    /// All gaps so far.
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
        ledger = Ledger(database)
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
        let listening = Listening(person, ledger.audience(seat, person), seat, position().durable)
        listening.topic = topic
        listening.epoch = position().end?.epoch
        if let place { listening.resumed = line.mark.flatMap { $0.place == place ? $0 : nil } }
        line.listening = listening
        line.lastPosition = nil
    }

    func joins(_ seat: Seat, as person: String, on channel: Int, of client: Int, topic: String) {
        let key = Key(client: client, channel: channel)
        let listening = Listening(person, ledger.audience(seat, person), seat, position().durable)
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

    /// Records the answer to a repeated join. The channel continues behind what it was sent, so the other state stays.
    /// If changes waited for a verdict, the messages after them arrive again.
    private func hasJoinedAgain(_ listening: Listening) {
        tally.joins += 1
        tally.rejoined += 1
        listening.joinsAgain = false
        listening.reached.message = min(listening.reached.message, listening.reached.change)
    }

    private func wasCut(_ listening: Listening, _ line: Line) {
        line.listening = nil
        if listening.optionalTo == nil, let returning = listening.returning {
            // The hub may have accepted the client, and has to notice that it is gone.
            returning.rests = rests()
            return
        }
        // The channel's person depends on whether the hub had read the new token.
        for person in listening.former + [listening.person] {
            let isUncertain = listening.optionalTo == nil || !listening.former.isEmpty
            let absentKey = AbsentKey(person: person, topic: listening.topic, seat: listening.seat)
            // A channel that did not return as the same person still counts as away when the other one has returned.
            if line.absent[absentKey] != nil { line.seconds[absentKey] = now() + Self.surelyForgotten }
            let isOneOfTwo = line.seconds[absentKey, default: 0] > now()
            line.absent[absentKey] = Absent(
                listening, isUncertain: isUncertain, isOneOfTwo: isOneOfTwo, at: now(), rests: rests())
        }
    }

    /// Records the end of the hub. If the power or its directory was lost, the hub may have forgotten its clients.
    /// Otherwise the hub knows what it had written down.
    func hubEnded(power: Bool, hasForgotten: Bool = false) {
        for case let line? in lines.joined() {
            for (key, absent) in line.absent {
                absent.isUncertain = absent.isUncertain || power || hasForgotten
                absent.listening.hubEnded(at: now(), rests: rests())
                // The hub remembers the channel that never came back as long as any other.
                if power { line.seconds[key] = now() + Self.surelyForgotten }
            }
        }
    }

    /// Records a new gap. Every channel must be told, and may receive again the changes after the gap's end.
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
        if listening.optionalTo != nil { listening.isOwedGap = true }
    }

    private func wasTold(_ text: String, _ listening: Listening) {
        tally.told += 1
        listening.toldAt = database.lastCommit
        if listening.isOwedGap { tally.toldOfGaps += 1 }
        listening.isOwedGap = false
        let isOf = { (gap: Gap) in text.contains("(\(gap.reason.rawValue))") }
        // If the notice is about another matter, the channel may still receive changes from before the gap.
        let told = listening.gaps.firstIndex(where: isOf)
        ledger.note()
        // A channel on a lagging loop may receive again the messages around a gap from before its join.
        if told == nil, let former = gaps.last(where: isOf) {
            listening.reached.message = min(listening.reached.message, ledger.firstNumber(behind: former.to) - 1)
        }
        guard let end = listening.gaps.map(\.to).min() else { return }
        if let told { listening.hasBeenTold(of: listening.gaps.remove(at: told)) }
        let first = ledger.firstNumber(behind: end)
        listening.heardNoFurther(than: first - 1)
    }

    /// Continues a client as if it had never been away, from the changes that the hub knew the client had received at
    /// least. The client receives everything since then, or is told that changes may be missing.
    private func goOn(_ listening: Listening, as absent: Absent) {
        let former = absent.listening
        let reached = absent.isOneOfTwo ? Reached() : former.known.reached
        listening.goOn(
            from: Mark(
                place: LogPlace(epoch: 0, offset: 0), durable: absent.isOneOfTwo ? LSN(0) : former.durable,
                // A channel without a reply is owed no more than a channel that joins for the first time.
                optionalTo: former.optionalTo ?? database.lastCommit, reached: reached, heard: former.heard,
                said: former.said,
                truncations: former.truncations, toldAt: former.toldAt))
        // The client is told, also if the hub may have forgotten it.
        if absent.isUncertain { listening.reached = Reached() }
        listening.isOwedGap = former.isOwedGap
        let isFromAnywhere = absent.isOneOfTwo || absent.isUncertain
        let toldAgain = isFromAnywhere ? former.gapsTold : former.known.gapsToldSince
        listening.gaps = toldAgain + former.gaps + listening.gaps
        listening.gapsTold = former.gapsTold.filter { !toldAgain.contains($0) }
        // The hub knows one position for changes and messages. If changes waited for a verdict, later messages arrive
        // again.
        listening.reached.message = min(listening.reached.message, listening.reached.change)
        listening.begins()
        tally.returned += 1
    }

    private func hasJoined(_ recovery: Recovery?, on line: Line, _ listening: Listening, _ who: () -> String) {
        tally.joins += 1
        listening.optionalTo = database.lastCommit
        if let returning = listening.returning {
            goOn(listening, as: returning)
            // From here on the absent channel's state is that of this channel.
            line.absent = line.absent.filter { $0.value !== returning }
        }
        switch (recovery, listening.resumed) {
        case (nil, nil): break
        case (.recovered?, let mark?):
            tally.resumed += 1
            if let epoch = listening.epoch, epoch != mark.place.epoch {
                complain("\(who()) went on at \(mark.place), and the log's epoch was \(epoch)")
            }
            listening.goOn(from: mark)
            // The join has a new topic, so the numbers of the old topic's messages do not apply.
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
        if listening.optionalTo == nil, what.followsAnswer {
            complain("\(who()) heard before its join was answered: \(what.summary)")
        }
        switch what {
        case .joined where listening.joinsAgain: hasJoinedAgain(listening)
        case .joined(let recovery): hasJoined(recovery, on: line, listening, who)
        case .subscribed: listening.isSubscribed = true
        case .became:
            guard !listening.former.isEmpty else { break }
            listening.former.removeFirst()
            listening.optionalTo = database.lastCommit
        case .refused:
            tally.refused += 1
            line.listening = nil
        case .position(let place):
            checkPosition(place, of: line, who)
            guard listening.former.isEmpty, let optionalTo = listening.optionalTo else { return line.mark = nil }
            line.mark = Mark(
                place: place, durable: listening.durable, optionalTo: optionalTo, reached: listening.reached,
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

    /// Checks a position that the channel was told. It must not lie beyond the log's end. It must not lie before an
    /// earlier position of the channel or before the log's end at the hub's start, because a client that resumes there
    /// gets changes again.
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

    /// Checks a change's place: not beyond the log's end, and not before its previous place or the channel's last
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

    // MARK: Received changes

    private func check(_ heard: HeardChange, _ listening: Listening, _ who: () -> String) {
        ledger.note()
        let said = { "\(heard.operation) \(heard.table) \(heard.record) \(heard.old)" }
        guard listening.optionalTo != nil else {
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
        // The same bytes are right for every channel of the audience.
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

    /// Checks a message of the database to a topic: every channel that joined the topic receives it once, in order. A
    /// lagging loop may also send it to channels that joined meanwhile.
    private func check(said version: Int, _ listening: Listening, _ who: () -> String) {
        ledger.note()
        tally.said += 1
        guard listening.optionalTo != nil else {
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
        listening.reached.message = max(number, listening.reached.message)
        listening.said.append(number)
    }

    /// Checks a notice of a truncation. One from before the join is allowed: the client only fetches once more.
    private func check(truncated name: String, _ listening: Listening, _ who: () -> String) {
        ledger.note()
        guard let table = ModelTable.subscribed.first(where: { $0.name == name }),
            ledger.truncations(for: listening.seat, from: 0).contains(where: { ledger.change($0).table == table })
        else { return complain("\(who()) was told that \(name) was emptied, of which it hears nothing") }
        listening.truncations[table] = database.lastCommit
    }

    // MARK: Missing changes

    /// Checks, after everything has come to rest, that each channel received all that it had to.
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

    /// Adds complaints of other checkers.
    func complain(of findings: [String]) { for finding in findings { complain(finding) } }

    private func settle(_ listening: Listening, _ who: String, _ oldest: LSN) {
        guard let first = listening.optionalTo else { return complain("\(who) was never answered") }
        if !listening.isSubscribed { complain("\(who) was never subscribed") }
        if listening.isOwedGap { complain("\(who) was never told that history has a gap") }
        let least = ledger.firstNumber(after: first)
        let changes = Self.missing(of: ledger.due(listening.audience), from: least, in: listening.heard)
            .filter { !dependsOnTheLog($0, oldest) }
        let leastSaid = ledger.firstNumber(after: max(first, listening.saidOptionalTo))
        let said = Self.missing(of: ledger.said(to: listening.topic), from: leastSaid, in: listening.said)
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
        listening.optionalTo = database.lastCommit
        listening.heard = []
        listening.said = []
    }

    /// Returns the numbers in `due`, from `least` on, that are not in `heard`.
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

    /// True if the hub can send a delete only if the log still has the row: the delete names only the row's key.
    private func dependsOnTheLog(_ number: Int, _ oldest: LSN) -> Bool {
        let (change, commit) = (ledger.change(number), ledger.commit(of: number))
        guard change.operation == .delete, let old = change.old, commit.rules.isNamedByKey(change.table) else {
            return false
        }
        guard let writing = ledger.number(ofVersion: old.version) else { return true }
        return ledger.commit(of: writing).end <= oldest || !ledger.commit(of: writing).isPublished
    }
}
