import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import History
import Judging
import Matching
import Policy
import Postgres

/// Pass over a window that finds the changes that each holder would receive under one `Ruling` (the policies of one
/// catalog). Uses the hub's own predicate index.
struct RulingPass: ~Copyable {
    /// Entry of the predicate index for a holder and a table: all policies together, or one of several.
    private struct Target {
        var pair: Int
        var part: Int?
        var residual: Residual
        var sets: [Int]
        var judged: JudgedPolicy?
        /// Binding whose filter and operations restrict the entry; nil means all changes.
        var binding: TableBinding?
        /// True if the entry is for one of several policies of the table.
        var isOneOfSeveral = false
    }

    /// Rows that only PostgreSQL can evaluate by one policy. They are collected until there are enough for one
    /// statement.
    private struct Question {
        var policy: JudgedPolicy
        var rows: [[String?]] = []
        /// Offset and operation of each row in `rows`, with the indexes of the targets that need its verdict.
        var asking: [(offset: UInt64, operation: Operation, targets: [Int])] = []
        var isOfPart: Bool
    }

    private let ruling: Ruling
    private let holders: [ExplainedHolder]
    private let targets: [Target]
    private let judge: TrialJudge?
    private let settings: FilterCheck.Settings
    private let operations: OperationSet
    private var index = PredicateIndex(maximumRelations: Limits.maximumCachedRelations)
    private var matches = MatchBatch()
    private var handles: [PredicateIndex.Handle?]
    private var memberships: PastMemberships
    private var schemas: WindowSchemas
    private var questions: [UInt64: Question] = [:]
    /// Number of rows about which PostgreSQL may still be asked under all policies together.
    private var asksLeft: Int
    /// Number of rows about which PostgreSQL may still be asked under single policies.
    private var asksOfPartsLeft: Int
    private let told: ToldChanges
    /// True if verdicts may be unknown. If false, an unknown verdict counts as no.
    private let keepsUnknown: Bool
    /// True if present data counts where the log does not show the past: memberships that cannot be computed back, and
    /// PostgreSQL's verdicts.
    private let asksNow: Bool
    /// Commit time of the transaction that is read, in microseconds since 1970.
    private var time: Int64 = .min

    /// Builds the predicate index for the ruling.
    ///
    /// - Parameter judge: session that asks PostgreSQL; nil if PostgreSQL can no longer be asked.
    init(
        _ ruling: Ruling, _ holders: [ExplainedHolder], _ judge: TrialJudge?, into told: ToldChanges,
        deletesAreStrict: Bool, asksAtMost: Int, lost: Masking?, keepsUnknown: Bool = false,
        asksNow: Bool = true, logMayEndEarly: Bool = false
    ) {
        self.keepsUnknown = keepsUnknown
        self.asksNow = asksNow
        self.ruling = ruling
        self.holders = holders
        self.judge = judge
        self.told = told
        operations = deletesAreStrict ? .all : [.insert, .update]
        asksLeft = asksAtMost
        asksOfPartsLeft = asksAtMost
        targets = Self.targets(of: ruling.pairs)
        settings = .ofPolicies(ruling.view.snapshot)
        memberships = PastMemberships(ruling.sets, ruling.view.snapshot, lost: lost, isStrict: !asksNow)
        if logMayEndEarly, !asksNow { memberships.freeze() }
        schemas = WindowSchemas(ruling.view.snapshot, lost: lost)
        handles = Array(repeating: nil, count: targets.count)
        for table in ruling.view.snapshot.tables {
            index.declare(table: table.oid, columns: table.columns.map(\.name))
        }
    }

    private static func targets(of pairs: [Ruling.Pair]) -> [Target] {
        var targets: [Target] = []
        // All holders of a role share these policies, so that one question to PostgreSQL covers all of them.
        var judged: [UInt64: [JudgedPolicy]] = [:]
        for (number, pair) in pairs.enumerated() {
            let whole = Target(
                pair: number, part: nil, residual: pair.residual, sets: pair.sets, judged: pair.policy?.judged)
            if let bindings = pair.bindings {
                for binding in bindings {
                    var target = whole
                    target.binding = binding
                    targets.append(target)
                }
                var target = whole
                target.part = pair.partOfAll
                targets.append(target)
            } else {
                targets.append(whole)
            }
            guard let policy = pair.policy, !pair.parts.isEmpty else { continue }
            let each = judged[policy.judged.identity] ?? pair.parts.map { policy.judged($0.part) }
            judged[policy.judged.identity] = each
            assert(each.count == pair.parts.count, "each single policy is judged by itself")
            for (place, part) in pair.parts.enumerated() {
                targets.append(
                    Target(
                        pair: number, part: place, residual: part.residual, sets: part.sets, judged: each[place],
                        isOneOfSeveral: true))
            }
        }
        return targets
    }

    // MARK: The window

    mutating func run(_ log: HistoryLog, _ window: HistoryWindow, progress: (UInt64) -> Void) throws {
        try memberships.takeBack(log, to: window.start, from: window.firstOffset)
        for target in targets.indices { place(target) }
        let tables = Set(ruling.pairs.map { TableName(schema: $0.table.schema, name: $0.table.name) })
        let keys = tables.union(memberships.tables).map { RowKey.table(schema: $0.schema, name: $0.name) }
        guard !tables.isEmpty else { return }
        var reader = try EventLogReader(directory: log.directory, from: window.start, matchingAnyOf: keys)
        var isWithin = false
        while try reader.next() {
            let entry = reader.entry
            if entry.offset >= window.endOffset || entry.segment > window.lastSegment { break }
            switch entry.kind {
            case .relation:
                try schemas.learn(reader.payload)
                try memberships.learn(reader.payload)
            case .transaction:
                // All effects of a transaction on memberships count for each of its changes, as in the hub.
                if !isWithin, !memberships.isEmpty { try follow(reader) }
                isWithin = entry.isContinued
                try judge(reader.payload, entry, window)
                progress(entry.offset)
            default: break
            }
        }
        for key in questions.keys.sorted() { try ask(key) }
    }

    /// Applies the effects on memberships of all parts of the transaction.
    private mutating func follow(_ reader: borrowing EventLogReader) throws {
        var changed = try memberships.apply(reader.payload)
        if reader.entry.isContinued {
            var ahead = reader.ahead()
            while try ahead.next() {
                if ahead.entry.kind == .relation { try memberships.learn(ahead.payload) }
                guard ahead.entry.kind == .transaction else { continue }
                changed.formUnion(try memberships.apply(ahead.payload))
                if !ahead.entry.isContinued { break }
            }
        }
        guard !changed.isEmpty else { return }
        for target in targets.indices where !changed.isDisjoint(with: targets[target].sets) { place(target) }
    }

    /// Puts the target's predicate into the predicate index, in place of its earlier predicate.
    ///
    /// - Parameter number: index in `targets`.
    private mutating func place(_ number: Int) {
        if let handle = handles[number] { index.remove(handle) }
        let target = targets[number]
        assert(target.binding == nil || target.part == nil, "an entry is for a binding or for policies alone")
        let table = ruling.pairs[target.pair].table
        let isBlind = keepsUnknown && ruling.pairs[target.pair].blindness != nil
        let residual = isBlind ? Residual.undecided : target.residual
        var predicate = residual.predicate(
            keys: isBlind ? [] : memberships.keys(of: target.sets), asker: UInt32(number), settings: settings)
        if let filter = target.binding?.predicate { predicate = .both(filter, predicate) }
        let asked = target.binding?.operations ?? table.operations
        handles[number] = index.add(
            table: table.oid, operations: operations.intersection(OperationSet(rawValue: asked.rawValue)),
            predicate: predicate, member: UInt32(number))
    }

    // MARK: Changes

    private mutating func judge(_ payload: RawSpan, _ entry: EventLogEntry, _ window: HistoryWindow) throws {
        var part = try TransactionPart(payload)
        index.moment = PostgresMoment.of(part.info.commitTime)
        index.committed = index.moment
        time = entry.time
        var offset = entry.offset
        while true {
            let judged = part
            let outcome = try index.match(&part, into: &matches)
            if matches.hasMatches { try note(judged, from: offset, time: entry.time, window) }
            offset += UInt64(matches.changeCount)
            if case .unknownRelation(let fingerprint) = outcome {
                let schema = try schemas.schema(fingerprint)
                index.noteRelation(fingerprint, schema.relation, foreign: schema.foreign)
            } else if matches.changeCount == 0 {
                return
            }
        }
    }

    private mutating func note(
        _ part: TransactionPart, from first: UInt64, time: Int64, _ window: HistoryWindow
    ) throws {
        var part = part
        for place in 0..<matches.changeCount {
            let offset = first + UInt64(place)
            guard let change = try part.next() else { return }
            guard window.contains(offset: offset, time: time) else { continue }
            for node in 0..<matches.certain(of: place).count {
                let members = index.members(of: matches.certain(of: place), at: node)
                for member in members.indices {
                    note(offset, to: Int(members[member]), change.operation)
                }
            }
            var asking: [Int] = []
            for node in 0..<matches.asking(of: place).count {
                let members = index.members(of: matches.asking(of: place), at: node)
                for member in members.indices { asking.append(Int(members[member])) }
            }
            if !asking.isEmpty { try want(change, at: offset, asking) }
        }
    }

    private func note(_ offset: UInt64, to number: Int, _ operation: Operation) {
        let target = targets[number]
        let pair = ruling.pairs[target.pair]
        told.note(offset, to: pair.holder, part: target.part, pair.table, operation)
        told.noteFacts(offset, of: pair.table, operation, at: time)
    }

    /// Records that the target's verdict on the change is unknown.
    private func noteUnknown(_ offset: UInt64, to number: Int, _ operation: Operation, _ cause: UnknownCause) {
        let target = targets[number]
        guard target.part == nil else { return }
        let pair = ruling.pairs[target.pair]
        switch cause {
        case .limit: told.unasked += 1
        case .filters: told.unfiltered += 1
        default: break
        }
        told.noteUnknown(offset, to: pair.holder, cause)
        told.noteFacts(offset, of: pair.table, operation, at: time)
    }

    // MARK: Questions to PostgreSQL

    /// Adds the row of a change to the questions for PostgreSQL, for each target whose verdict the predicate index
    /// cannot give.
    private mutating func want(_ change: borrowing Change, at offset: UInt64, _ asking: [Int]) throws {
        for number in asking {
            let target = targets[number]
            if let cause = try unknownCause(target, change) {
                noteUnknown(offset, to: number, change.operation, cause)
                continue
            }
            guard try passesFilter(target, change) == true, let policy = target.judged, mayAsk(target) else { continue }
            var question = questions[policy.identity] ?? Question(policy: policy, isOfPart: target.isOneOfSeveral)
            if question.asking.last?.offset == offset {
                question.asking[question.asking.count - 1].targets.append(number)
            } else if let row = try texts(of: policy.row, change, ruling.pairs[target.pair].table) {
                question.rows.append(row)
                question.asking.append((offset, change.operation, [number]))
                if question.isOfPart { asksOfPartsLeft -= 1 } else { asksLeft -= 1 }
                told.noteFacts(offset, of: ruling.pairs[target.pair].table, change.operation, at: time)
            } else {
                noteUnknown(offset, to: number, change.operation, .columns)
            }
            assert(question.rows.count == question.asking.count, "each row has the targets that ask about it")
            assert(question.rows.count <= Limits.policyStatementRows, "a statement gets no more rows than allowed")
            questions[policy.identity] = question
            if question.rows.count >= Limits.policyStatementRows { try ask(policy.identity) }
        }
    }

    /// Returns the cause for which the verdict is unknown if the predicate index cannot decide it. Nil if PostgreSQL
    /// may be asked, or if the filter excludes the row.
    private mutating func unknownCause(_ target: Target, _ change: borrowing Change) throws -> UnknownCause? {
        guard target.part == nil else { return nil }
        let pair = ruling.pairs[target.pair]
        if keepsUnknown, pair.blindness == .filters { return .filters }
        // PostgreSQL is not asked about the row before a change, and the filter depends on who may see that row.
        if target.binding?.readsOldRow == true { return .columns }
        guard let passes = try passesFilter(target, change) else { return .filters }
        guard passes else { return nil }
        guard let policy = target.judged else { return .columns }
        if keepsUnknown, let cause = pair.blindness { return cause }
        if asksNow { return judge == nil || asksLeft <= 0 ? .limit : nil }
        if target.sets.contains(where: { !memberships.isKnown($0) }) { return .memberships }
        return try texts(of: policy.row, change, pair.table) == nil ? .columns : .onlyPostgres
    }

    /// Returns true if the row passes the target's filter; nil if only PostgreSQL could decide that.
    private mutating func passesFilter(_ target: Target, _ change: borrowing Change) throws -> Bool? {
        guard let filter = target.binding?.predicate else { return true }
        switch try index.verdict(of: filter, on: change) {
        case .yes: return true
        case .no, .unknown, .notYes, .failed: return false
        case .ask: return nil
        }
    }

    /// True if PostgreSQL may be asked about one more row. Single policies have a limit of their own: beyond it only
    /// the reason of a result is unknown.
    private func mayAsk(_ target: Target) -> Bool {
        if target.isOneOfSeveral { return judge != nil && asksOfPartsLeft > 0 }
        return judge != nil && asksLeft > 0
    }

    /// Returns the row's values as texts; nil if the image lacks a column that the policies read. No holder then
    /// receives the row.
    private func texts(
        of row: JudgedRow, _ change: borrowing Change, _ table: CatalogTable
    ) throws -> [String?]? {
        var texts: [String?] = []
        for column in row.columns {
            switch try schemas.value(of: table.columns[column.slot], in: change, .new) {
            case .text(let text): texts.append(String(decoding: text, as: UTF8.self))
            case .null: texts.append(nil)
            case .absent where column.isNeeded: return nil
            case .absent: texts.append(nil)
            }
        }
        return texts
    }

    /// Asks PostgreSQL about the collected rows of one policy, and records the verdicts.
    private mutating func ask(_ key: UInt64) throws {
        guard let judge, let question = questions.removeValue(forKey: key), !question.rows.isEmpty else { return }
        let asking = Set(question.asking.flatMap(\.targets)).sorted()
        let claims = asking.map { holders[ruling.pairs[targets[$0].pair].holder].claims }
        let verdicts = try judge.judge(question.policy, rows: question.rows, claims: claims)
        for (row, who) in question.asking.enumerated() {
            for target in who.targets {
                guard let place = asking.firstIndex(of: target) else { continue }
                switch verdicts[place][row] {
                case true?: note(who.offset, to: target, who.operation)
                case false?: continue
                case nil: noteUnknown(who.offset, to: target, who.operation, .onlyPostgres)
                }
            }
        }
        if !question.isOfPart { told.asked += question.rows.count }
    }

    /// True if all memberships that are known at all could be computed back to the time of the changes.
    var isExact: Bool { memberships.isExact }
}
