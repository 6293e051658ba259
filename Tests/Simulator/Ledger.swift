import Change

/// Group of channels with the same bindings and the same person. The hub must send all of them the same changes, in the
/// same bytes.
final class Audience {
    struct Key: Hashable {
        var bindings: [Seat.Binding]
        var person: String
    }

    let seat: Seat
    let person: String
    /// Received changes that were already found correct, by the change's number.
    private var sound: [HeardChange?] = []
    fileprivate var due: [Int] = []
    /// Number of changes that were examined for `due`.
    fileprivate var dueTo = 0
    fileprivate var definitions = 0

    fileprivate init(_ seat: Seat, _ person: String) {
        self.seat = seat
        self.person = person
    }

    /// True if the same bytes were already checked for this audience and found correct.
    func isSound(_ heard: HeardChange, _ number: Int) -> Bool { number < sound.count && sound[number] === heard }

    func found(_ heard: HeardChange, _ number: Int) {
        while sound.count <= number { sound.append(nil) }
        sound[number] = heard
    }
}

/// All committed changes of the model, numbered from 0, with the audiences that must receive each.
final class Ledger {
    enum Interest { case none, possible, due }

    private struct Deleted: Hashable {
        var table: String
        var id: Int
    }

    private let database: ModelDatabase
    private var places: [(commit: Int, change: Int)] = []
    /// Number of each commit's first change, by the commit's number.
    private var firsts = [0]
    /// Number of the change that wrote each row version, by the version; -1 if there is none.
    private var versions: [Int] = []
    private var deletes: [Deleted: Int] = [:]
    /// Numbers of the database's messages, by topic.
    private var said: [String: [Int]] = [:]
    /// Deletion of each deleted message, by the message's number.
    private var deletions: [Int: Deletion] = [:]
    private let now: () -> UInt64
    private var truncations: [Int] = []
    private var noted = 0
    /// Commits that changed the rules.
    private var definitions: [(commit: Int, rules: ModelRules)] = []
    private var audiences: [Audience.Key: Audience] = [:]
    private var rulesKnown: (commit: Int, definitions: Int, rules: [ModelRules])?

    init(_ database: ModelDatabase, now: @escaping () -> UInt64) {
        self.database = database
        self.now = now
    }

    func note() {
        guard noted < database.lastCommit else { return }
        for commit in database.commits[noted...] {
            firsts.append(places.count)
            if commit.defines { definitions.append((commit.number, commit.rules)) }
            for (place, change) in commit.changes.enumerated() { note(change, commit.number, place) }
        }
        noted = database.lastCommit
    }

    private func note(_ change: ModelChange, _ commit: Int, _ place: Int) {
        let number = places.count
        places.append((commit, place))
        if let new = change.new {
            while versions.count <= new.version { versions.append(-1) }
            versions[new.version] = number
        }
        if change.table == .messages, let new = change.new { said["realtime:" + new.owner, default: []].append(number) }
        if change.operation == .truncate { truncations.append(number) }
        guard change.operation == .delete, let old = change.old else { return }
        let before = deletes.updateValue(number, forKey: Deleted(table: change.table.name, id: old.id))
        precondition(before == nil, "no two rows of a table ever have one key")
        if change.table == .messages, let sent = self.number(ofVersion: old.version) {
            deletions[sent] = Deletion(end: database.commits[commit - 1].end, at: now())
        }
    }

    // MARK: Changes by their numbers

    func commit(of number: Int) -> ModelCommit { database.commits[places[number].commit - 1] }

    func change(_ number: Int) -> ModelChange { commit(of: number).changes[places[number].change] }

    func name(of number: Int) -> String { "#\(places[number].commit).\(places[number].change)" }

    func number(ofVersion version: Int) -> Int? {
        versions.indices.contains(version) && versions[version] >= 0 ? versions[version] : nil
    }

    /// Number of the first change after this commit.
    func firstNumber(after commit: Int) -> Int { commit + 1 < firsts.count ? firsts[commit + 1] : places.count }

    /// Number of the first change whose commit ends after this LSN.
    func firstNumber(behind end: LSN) -> Int { firstNumber(after: database.lastCommit(endingBy: end)) }

    /// Returns the number of a received change; nil if no such change was ever committed.
    func number(of heard: HeardChange) -> Int? {
        if let known = heard.ordinal { return known }
        heard.ordinal =
            heard.operation == "DELETE"
            ? heard.before.id.flatMap { deletes[Deleted(table: heard.table, id: $0)] }
            : heard.new.version.flatMap { self.number(ofVersion: $0) }
        return heard.ordinal
    }

    // MARK: Audiences

    func audience(_ seat: Seat, _ person: String) -> Audience {
        let key = Audience.Key(bindings: seat.bindings, person: person)
        if let known = audiences[key] { return known }
        let audience = Audience(seat, person)
        audiences[key] = audience
        return audience
    }

    /// Returns the rules by which the hub may have evaluated a change: those of its commit, and all later ones.
    func rules(since commit: ModelCommit) -> [ModelRules] {
        if let known = rulesKnown, known.commit == commit.number, known.definitions == definitions.count {
            return known.rules
        }
        var found = [commit.rules]
        for later in definitions where later.commit > commit.number && !found.contains(later.rules) {
            found.append(later.rules)
        }
        rulesKnown = (commit.number, definitions.count, found)
        return found
    }

    func interest(of seat: Seat, _ person: String, in number: Int) -> Interest {
        let (commit, change) = (commit(of: number), change(number))
        guard let row = change.new ?? change.old else { return .none }
        let isWanted = seat.bindings.contains { binding in
            binding.table == change.table && binding.operation.map { $0 == change.operation } ?? true
                && binding.room.map { $0 == row.room } ?? true && binding.row.map { $0 == row.id } ?? true
        }
        guard isWanted else { return .none }
        let rules = rules(since: commit)
        let seen = rules.count { ModelDatabase.sees(person, row, of: change.table, $0, commit.members) }
        return seen == 0 ? .none : seen == rules.count ? .due : .possible
    }

    /// Returns the numbers of the messages to a topic, in ascending order.
    func said(to topic: String) -> [Int] { said[topic] ?? [] }

    struct Deletion {
        var end: LSN
        /// Time at which the deletion was committed.
        var at: UInt64
    }

    /// Returns the time of a message's deletion; nil if the message was not deleted.
    func deletion(ofMessage number: Int) -> Deletion? { deletions[number] }

    /// Returns the numbers of the truncations about which the hub notifies a channel with these subscriptions, from
    /// `least` on and ascending.
    func truncations(for seat: Seat, from least: Int) -> [Int] {
        truncations[truncations.partitioningIndex(least)...].filter { seat.hearsTruncation(of: change($0).table) }
    }

    /// Returns the numbers of all changes that an audience must receive, in ascending order.
    func due(_ audience: Audience) -> [Int] {
        // A later definition may have made a change visible or invisible before the hub reads that change.
        if audience.definitions != definitions.count {
            audience.definitions = definitions.count
            audience.due = []
            audience.dueTo = 0
        }
        for number in audience.dueTo..<places.count
        where interest(of: audience.seat, audience.person, in: number) == .due {
            audience.due.append(number)
        }
        audience.dueTo = places.count
        return audience.due
    }
}

extension Seat {
    /// True if the subscriptions include deletes of the table. The hub then sends a notice about truncations of the
    /// table.
    func hearsTruncation(of table: ModelTable) -> Bool {
        bindings.contains { $0.table == table && $0.operation.map { $0 == .delete } ?? true }
    }
}

extension [Int] {
    /// Returns the index of the first element that is not less than `least`. The elements must ascend.
    func partitioningIndex(_ least: Int) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if self[middle] < least { low = middle + 1 } else { high = middle }
        }
        return low
    }
}
