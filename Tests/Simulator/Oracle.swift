import Change

/// Knows what each channel had to hear, by the model alone, and says what is wrong with what it heard.
///
/// A channel hears what is committed after the reply to its join, in the order of commits and within a transaction in the
/// order it was made, each once, with its values. Only this excuses a change that is missing: the client was told that
/// something may be missing, or its channel ended. Nothing excuses one that comes twice, out of order, wrong, or to
/// somebody who may not see it.
final class Oracle: Hearing {
    /// What the log surely has already.
    struct Position {
        var durable: LSN
        var oldestKept: LSN
        /// Where the log ends, and where it ended when the hub began; nil where it had not begun.
        var end: LogPlace?
        var start: LogPlace?
    }

    private struct Key: Hashable {
        var client: Int
        var channel: Int
    }

    private struct Place: Comparable {
        var commit: Int
        var change: Int

        static func < (left: Place, right: Place) -> Bool { (left.commit, left.change) < (right.commit, right.change) }
    }

    private final class Listening {
        var person: String
        /// Whose it was, until the hub has read the next one's token.
        var former: [String] = []
        let seat: Seat
        /// The log had these when the join was sent.
        private(set) var durable: LSN
        /// Commits up to here may come or not; nil until the join was answered.
        var optionalTo: Int?
        var isSubscribed = false
        var lastHeard = Place(commit: 0, change: -1)
        var heardPlaces: Set<Int> = []
        /// Told of a loss when so much was committed: what is older may be missing.
        var toldAt = 0
        /// Where it asked to go on, and what it had heard there.
        var resumed: Mark?
        /// Who had it before a cut, of a client that asks for nothing.
        var returning: Absent?
        var topic = ""
        /// What was heard when it began, or at the ping before the last, and at the last. The hub knows of the one before it.
        var heardAtPings: [Place] = [Place(commit: 0, change: -1)]

        init(_ person: String, _ seat: Seat, _ durable: LSN) {
            self.person = person
            self.seat = seat
            self.durable = durable
        }

        /// It goes on as if it had never been away.
        func goOn(from mark: Mark) {
            durable = mark.durable
            optionalTo = mark.optionalTo
            lastHeard = mark.lastHeard
            heardPlaces = mark.heardPlaces
            toldAt = mark.toldAt
        }
    }

    /// What a channel had heard when it was told that this was all up to there.
    private struct Mark {
        var place: LogPlace
        var durable: LSN
        var optionalTo: Int
        var lastHeard: Place
        var heardPlaces: Set<Int>
        var toldAt: Int
    }

    /// Whose client was cut, and may come back.
    private struct AbsentKey: Hashable {
        var key: Key
        var person: String
        var topic: String
        var seat: Seat
    }

    private final class Absent {
        let listening: Listening
        /// The hub may have forgotten it.
        var isUncertain: Bool
        /// Somebody of the same kind has gone before and not come back: it may go on where that one was.
        let isOneOfTwo: Bool
        let at: UInt64

        init(_ listening: Listening, isUncertain: Bool, isOneOfTwo: Bool, at: UInt64) {
            self.listening = listening
            self.isUncertain = isUncertain
            self.isOneOfTwo = isOneOfTwo
            self.at = at
        }
    }

    /// So long it is surely remembered.
    private static let surelyRemembered: UInt64 = 100_000_000_000

    private let database: ModelDatabase
    private var absent: [AbsentKey: Absent] = [:]
    private let position: () -> Position
    private var listenings: [Key: Listening] = [:]
    private(set) var complaints: [String] = []
    private(set) var tally = Tally()
    private var versions: [Int: Place] = [:]
    private var deletes: [Deleted: [Place]] = [:]
    private var noted = 0
    /// What channels were told last since they were joined.
    private var lastPositions: [Key: LogPlace] = [:]
    private var marks: [Key: Mark] = [:]
    /// Told of all that is heard.
    var trace: ((String) -> Void)?
    /// Of all that was heard, in its order.
    private(set) var fingerprint: UInt64 = 0xcbf2_9ce4_8422_2325

    private struct Deleted: Hashable {
        var table: String
        var id: Int
    }

    struct Tally {
        var deliveries = 0
        var joins = 0
        var told = 0
        var excused = 0
        var refused = 0
        /// Joins that went on where they wanted to, and that did not.
        var resumed = 0
        var refetched = 0
        /// Joins of clients that ask for nothing and came back.
        var returned = 0
    }

    private let now: () -> UInt64

    init(_ database: ModelDatabase, now: @escaping () -> UInt64 = { 0 }, _ position: @escaping () -> Position) {
        self.now = now
        self.database = database
        self.position = position
    }

    private func mix(_ text: String) {
        for byte in text.utf8 { fingerprint = (fingerprint ^ UInt64(byte)) &* 0x100_0000_01b3 }
    }

    private func complain(_ text: String) {
        complaints.append(text)
    }

    // MARK: Hearing

    func joins(_ seat: Seat, as person: String, on channel: Int, of client: Int, from place: LogPlace?) {
        let key = Key(client: client, channel: channel)
        let listening = Listening(person, seat, position().durable)
        if let place { listening.resumed = marks[key].flatMap { $0.place == place ? $0 : nil } }
        listenings[key] = listening
        lastPositions[key] = nil
    }

    func joins(_ seat: Seat, as person: String, on channel: Int, of client: Int, topic: String) {
        let key = Key(client: client, channel: channel)
        let listening = Listening(person, seat, position().durable)
        listening.topic = topic
        listening.returning = absent[AbsentKey(key: key, person: person, topic: topic, seat: seat)]
        if let returning = listening.returning, now() - returning.at > Self.surelyRemembered {
            returning.isUncertain = true
        }
        listenings[key] = listening
    }

    private func wasCut(_ listening: Listening, _ key: Key) {
        listenings[key] = nil
        if listening.optionalTo == nil, listening.returning != nil { return }
        // Whose it is by now depends on whether the hub had read that it is another's.
        for person in listening.former + [listening.person] {
            let isUncertain = listening.optionalTo == nil || !listening.former.isEmpty
            let absentKey = AbsentKey(key: key, person: person, topic: listening.topic, seat: listening.seat)
            absent[absentKey] = Absent(
                listening, isUncertain: isUncertain, isOneOfTwo: absent[absentKey] != nil, at: now())
        }
    }

    /// The hub ended at a moment. With the power it may have forgotten who was there; otherwise it may take one that came back
    /// for two, and go on where the first one was.
    func hubEnded(power: Bool) {
        for absent in absent.values {
            absent.isUncertain = absent.isUncertain || power
            absent.listening.heardAtPings = [Place(commit: 0, change: -1)]
        }
    }

    /// It goes on as if it had never been away, from what the hub knew to have been heard at least.
    private func goOn(_ listening: Listening, as absent: Absent) {
        let before = listening.optionalTo
        let former = absent.listening
        let began = Place(commit: 0, change: -1)
        let reached = absent.isOneOfTwo ? began : former.heardAtPings.first ?? began
        listening.goOn(
            from: Mark(
                place: LogPlace(epoch: 0, offset: 0), durable: absent.isOneOfTwo ? LSN(0) : former.durable,
                optionalTo: former.optionalTo ?? 0, lastHeard: reached, heardPlaces: former.heardPlaces,
                toldAt: former.toldAt))
        if absent.isUncertain {
            listening.optionalTo = before
            listening.lastHeard = Place(commit: 0, change: -1)
        }
        listening.heardAtPings = [listening.lastHeard]
        tally.returned += 1
    }

    private func hasJoined(_ recovery: Recovery?, _ listening: Listening, _ who: String) {
        tally.joins += 1
        listening.optionalTo = database.lastCommit
        if let returning = listening.returning {
            goOn(listening, as: returning)
            // From here on it stands where this one does.
            absent = absent.filter { $0.value !== returning }
        }
        switch (recovery, listening.resumed) {
        case (nil, nil): break
        case (.recovered?, let mark?):
            tally.resumed += 1
            listening.goOn(from: mark)
        case (.refused(let reason)?, let mark?):
            tally.refetched += 1
            let isSameEpoch = position().end?.epoch == mark.place.epoch
            if reason == "unknown_position" || isSameEpoch && reason == "epoch_changed" {
                complain("\(who) could not go on at \(mark.place): \(reason)")
            }
        default: complain("\(who) was told of a recovery that it did not ask for, or the other way round")
        }
    }

    func becomes(_ person: String, on channel: Int, of client: Int) {
        guard let listening = listenings[Key(client: client, channel: channel)] else { return }
        listening.former.append(listening.person)
        listening.isSubscribed = false
        listening.person = person
    }

    func hasGone(_ channel: Int, of client: Int) {
        listenings[Key(client: client, channel: channel)] = nil
    }

    func heard(_ what: Heard, on channel: Int, of client: Int) {
        let key = Key(client: client, channel: channel)
        guard let listening = listenings[key] else { return }
        mix("\(client) \(channel) \(what.summary)")
        trace?("client \(client) channel \(channel): \(what.summary)")
        switch what {
        case .joined(let recovery):
            hasJoined(recovery, listening, "client \(client) channel \(channel) (\(listening.person))")
        case .subscribed: listening.isSubscribed = true
        case .became:
            guard !listening.former.isEmpty else { break }
            listening.former.removeFirst()
            listening.optionalTo = database.lastCommit
        case .refused:
            tally.refused += 1
            listenings[key] = nil
        case .position(let place):
            checkPosition(place, of: key, "client \(client) channel \(channel) (\(listening.person))")
            if listening.former.isEmpty, let optionalTo = listening.optionalTo {
                marks[key] = Mark(
                    place: place, durable: listening.durable, optionalTo: optionalTo, lastHeard: listening.lastHeard,
                    heardPlaces: listening.heardPlaces, toldAt: listening.toldAt)
            } else {
                marks[key] = nil
            }
        case .told:
            tally.told += 1
            listening.toldAt = database.lastCommit
        case .closed: listenings[key] = nil
        case .cut: wasCut(listening, key)
        case .pinged:
            listening.heardAtPings.append(listening.lastHeard)
            if listening.heardAtPings.count > 2 { listening.heardAtPings.removeFirst() }
        case .change(let change):
            tally.deliveries += 1
            check(
                change, listening, "client \(client) channel \(channel) (\(listening.person), \(listening.seat.topic))")
        }
    }

    /// A position is no further than the log, and not behind one that the channel was told before or what the log had
    /// when the hub began: whoever resumes there would get what it has.
    private func checkPosition(_ place: LogPlace, of key: Key, _ who: String) {
        let (start, end) = (position().start, position().end)
        if let end, end.epoch == place.epoch, end.offset < place.offset {
            complain("\(who) was told of \(place), and the log ends at \(end)")
        }
        for before in [start, lastPositions[key]] {
            if let before, before.epoch == place.epoch, place.offset < before.offset {
                complain("\(who) was told of \(place) after \(before)")
            }
        }
        lastPositions[key] = place
    }

    // MARK: What was heard

    private func note() {
        for commit in database.commits[noted...] {
            for (number, change) in commit.changes.enumerated() {
                let place = Place(commit: commit.number, change: number)
                if let new = change.new { versions[new.version] = place }
                if change.operation == .delete, let old = change.old {
                    deletes[Deleted(table: change.table.name, id: old.id), default: []].append(place)
                }
            }
        }
        noted = database.lastCommit
    }

    private func check(_ heard: HeardChange, _ listening: Listening, _ who: String) {
        note()
        let said = "\(heard.operation) \(heard.table) \(heard.record) \(heard.old)"
        guard listening.optionalTo != nil else { return complain("\(who) heard before its join was answered: \(said)") }
        guard let place = place(of: heard, listening) else { return complain("\(who) heard what never was: \(said)") }
        let commit = database.commits[place.commit - 1]
        let change = commit.changes[place.change]
        let what = "#\(place.commit).\(place.change) \(said)"
        if place <= listening.lastHeard { complain("\(who) heard twice or out of order: \(what)") }
        listening.lastHeard = max(place, listening.lastHeard)
        listening.heardPlaces.insert(place.commit << 16 | place.change)
        if commit.end <= listening.durable { complain("\(who) heard what the log had before its join: \(what)") }
        if heard.errors != nil { complain("\(who) heard errors: \(what)") }
        guard change.operation.rawValue == heard.operation else {
            return complain("\(who) heard another operation: \(what)")
        }
        let persons = [listening.person] + listening.former
        let isForNobody = persons.allSatisfy {
            Self.interest(in: change, listening.seat, of: $0, allOf: rules(since: commit), commit.members) == .none
        }
        if isForNobody {
            complain("\(who) heard what is not for it: \(what)")
        }
        checkValues(heard, change, commit, listening, who, what)
    }

    private func place(of heard: HeardChange, _ listening: Listening) -> Place? {
        if heard.operation == "DELETE" {
            guard let id = heard.old["id"] as? Int else { return nil }
            let places = deletes[Deleted(table: heard.table, id: id)] ?? []
            return places.first { $0 > listening.lastHeard } ?? places.last
        }
        return (heard.record["version"] as? Int).flatMap { versions[$0] }
    }

    private func checkValues(
        _ heard: HeardChange, _ change: ModelChange, _ commit: ModelCommit, _ listening: Listening, _ who: String,
        _ what: String
    ) {
        if let new = change.new, !Self.isSame(heard.record, new, isWhole: true) {
            complain("\(who) heard other values than \(new): \(what)")
        }
        guard let old = change.old else { return }
        let saw = rules(since: commit).contains { rules in
            ([listening.person] + listening.former).contains {
                ModelDatabase.sees($0, old, of: change.table, rules, commit.members)
            }
        }
        let beyond = heard.old.keys.contains { $0 != "id" }
        if !saw, beyond || heard.old["id"] as? Int ?? change.new?.id != change.new?.id {
            complain("\(who) heard of an old row that it may not see: \(what)")
        }
        if !Self.isSame(heard.old, old, isWhole: false) { complain("\(who) heard other old values: \(what)") }
    }

    private static func isSame(_ heard: [String: Any], _ row: ModelRow, isWhole: Bool) -> Bool {
        let values: [String: AnyHashable] = [
            "id": row.id, "owner": row.owner, "room": row.room, "body": row.body, "version": row.version,
        ]
        for (name, value) in values {
            guard let came = heard[name] else {
                if isWhole { return false }
                continue
            }
            if came as? AnyHashable != value { return false }
        }
        return true
    }

    // MARK: What is for whom

    /// The rules under which a change may have been judged: those of its commit, and whatever came later.
    private func rules(since commit: ModelCommit) -> [ModelRules] {
        if let known = rulesKnown, known.commit == commit.number, known.last == database.lastCommit {
            return known.rules
        }
        var found: [ModelRules] = []
        for later in database.commits[(commit.number - 1)...] where later.number == commit.number || later.defines {
            if !found.contains(later.rules) { found.append(later.rules) }
        }
        rulesKnown = (commit.number, database.lastCommit, found)
        return found
    }

    private var rulesKnown: (commit: Int, last: Int, rules: [ModelRules])?

    private enum Interest { case none, possible, due }

    private static func interest(
        in change: ModelChange, _ seat: Seat, of person: String, allOf rules: [ModelRules],
        _ members: [String: [Int: Int]]
    ) -> Interest {
        guard let row = change.new ?? change.old else { return .none }
        let isWanted = seat.bindings.contains { binding in
            binding.table == change.table && binding.operation.map { $0 == change.operation } ?? true
                && binding.room.map { $0 == row.room } ?? true && binding.row.map { $0 == row.id } ?? true
        }
        guard isWanted else { return .none }
        let seen = rules.count { ModelDatabase.sees(person, row, of: change.table, $0, members) }
        return seen == 0 ? .none : seen == rules.count ? .due : .possible
    }

    // MARK: What was not heard

    /// Everything has come to rest: whatever had to be heard was.
    func settle() {
        note()
        let oldest = position().oldestKept
        for (key, listening) in listenings.sorted(by: {
            ($0.key.client, $0.key.channel) < ($1.key.client, $1.key.channel)
        }) {
            let who = "client \(key.client) channel \(key.channel) (\(listening.person), \(listening.seat.topic))"
            guard let first = listening.optionalTo else {
                complain("\(who) was never answered")
                continue
            }
            if !listening.isSubscribed { complain("\(who) was never subscribed") }
            for commit in database.commits.dropFirst(first) {
                for (number, change) in commit.changes.enumerated()
                where isMissing(change, number, commit, listening, oldest) {
                    if commit.number <= listening.toldAt {
                        tally.excused += 1
                    } else {
                        complain("\(who) did not hear #\(commit.number).\(number) \(change)")
                    }
                }
            }
            listening.optionalTo = database.lastCommit
            listening.heardPlaces = []
        }
    }

    private func isMissing(
        _ change: ModelChange, _ number: Int, _ commit: ModelCommit, _ listening: Listening, _ oldest: LSN
    ) -> Bool {
        guard !listening.heardPlaces.contains(commit.number << 16 | number) else { return false }
        let interest = Self.interest(
            in: change, listening.seat, of: listening.person, allOf: rules(since: commit), commit.members)
        guard interest == .due else { return false }
        return !dependsOnTheLog(change, commit, oldest)
    }

    /// A delete that names its row only by its key is told where the log still says what the row was.
    private func dependsOnTheLog(_ change: ModelChange, _ commit: ModelCommit, _ oldest: LSN) -> Bool {
        guard change.operation == .delete, let old = change.old, commit.rules.isNamedByKey(change.table) else {
            return false
        }
        guard let place = versions[old.version] else { return true }
        return database.commits[place.commit - 1].end <= oldest
    }
}
