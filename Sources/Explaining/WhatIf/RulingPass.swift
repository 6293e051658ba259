import Bytes
import Catalog
import Change
import Delivery
import Diagnostics
import EventLog
import History
import Judging
import Matching
import Policy
import Postgres

/// Which changes of a window each holder would have been told of, by one ruling: the hub's own index finds them.
struct RulingPass: ~Copyable {
    /// Rows that only PostgreSQL can judge wait until there are enough to ask about.
    private struct Question {
        var policy: JudgedPolicy
        var rows: [[String?]] = []
        /// Of each row: where it is told, and to whose pairs.
        var asking: [(offset: UInt64, operation: Operation, pairs: [Int])] = []
    }

    private let ruling: Ruling
    private let holders: [ExplainedHolder]
    private let judge: TrialJudge?
    private let settings: FilterCheck.Settings
    private let operations: OperationSet
    private var index = PredicateIndex(maximumRelations: Limits.maximumCachedRelations)
    private var matches = MatchBatch()
    private var handles: [PredicateIndex.Handle?]
    private var memberships: PastMemberships
    private var schemas: WindowSchemas
    private var questions: [UInt64: Question] = [:]
    /// So many rows may still be asked about.
    private var asksLeft: Int
    private let told: ToldChanges

    /// - Parameter judge: nil where nothing can be asked any more.
    init(
        _ ruling: Ruling, _ holders: [ExplainedHolder], _ judge: TrialJudge?, into told: ToldChanges,
        deletesAreStrict: Bool, asksAtMost: Int
    ) {
        self.ruling = ruling
        self.holders = holders
        self.judge = judge
        self.told = told
        operations = deletesAreStrict ? .all : [.insert, .update]
        asksLeft = asksAtMost
        settings = .ofPolicies(ruling.view.snapshot)
        memberships = PastMemberships(ruling.sets, ruling.view.snapshot)
        schemas = WindowSchemas(ruling.view.snapshot)
        handles = Array(repeating: nil, count: ruling.pairs.count)
        for table in ruling.view.snapshot.tables {
            index.declare(table: table.oid, columns: table.columns.map(\.name))
        }
    }

    // MARK: The window

    mutating func run(_ log: HistoryLog, _ window: HistoryWindow, progress: (UInt64) -> Void) throws {
        try memberships.takeBack(log, to: window.start, from: window.firstOffset)
        for pair in ruling.pairs.indices { place(pair) }
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
                // All of a transaction counts for each of its changes, as it does for the hub.
                if !isWithin, !memberships.isEmpty { try follow(reader) }
                isWithin = entry.isContinued
                try judge(reader.payload, entry, window)
                progress(entry.offset)
            default: break
            }
        }
        for key in questions.keys.sorted() { try ask(key) }
    }

    /// What the transaction does to memberships, in all of its parts.
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
        for pair in ruling.pairs.indices where !changed.isDisjoint(with: ruling.pairs[pair].sets) { place(pair) }
    }

    /// Puts a holder's predicate where the table's changes find it, in place of the former one.
    private mutating func place(_ number: Int) {
        if let handle = handles[number] { index.remove(handle) }
        let pair = ruling.pairs[number]
        let predicate = pair.residual.predicate(
            keys: memberships.keys(of: pair.sets), asker: UInt32(number), settings: settings)
        handles[number] = index.add(
            table: pair.table.oid,
            operations: operations.intersection(OperationSet(rawValue: pair.table.operations.rawValue)),
            predicate: predicate, member: UInt32(number))
    }

    // MARK: Changes

    private mutating func judge(_ payload: RawSpan, _ entry: EventLogEntry, _ window: HistoryWindow) throws {
        var part = try TransactionPart(payload)
        index.moment = PostgresMoment.of(part.info.commitTime)
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
                    told.note(offset, to: ruling.pairs[Int(members[member])], change.operation)
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

    // MARK: What only PostgreSQL says

    private mutating func want(_ change: borrowing Change, at offset: UInt64, _ pairs: [Int]) throws {
        for pair in pairs {
            guard let policy = ruling.pairs[pair].policy?.judged else { continue }
            guard judge != nil, asksLeft > 0 else {
                told.unasked += 1
                continue
            }
            var question = questions[policy.identity] ?? Question(policy: policy)
            if question.asking.last?.offset == offset {
                question.asking[question.asking.count - 1].pairs.append(pair)
            } else if let row = try texts(of: policy.row, change, ruling.pairs[pair].table) {
                question.rows.append(row)
                question.asking.append((offset, change.operation, [pair]))
                asksLeft -= 1
            }
            questions[policy.identity] = question
            if question.rows.count >= Limits.policyStatementRows { try ask(policy.identity) }
        }
    }

    /// Nil where the image lacks what the policies look at: nobody is told then.
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

    private mutating func ask(_ key: UInt64) throws {
        guard let judge, let question = questions.removeValue(forKey: key), !question.rows.isEmpty else { return }
        let asking = Set(question.asking.flatMap(\.pairs)).sorted()
        let claims = asking.map { holders[ruling.pairs[$0].holder].claims }
        let verdicts = try judge.judge(question.policy, rows: question.rows, claims: claims)
        for (row, who) in question.asking.enumerated() {
            for pair in who.pairs {
                guard let place = asking.firstIndex(of: pair), verdicts[place][row] == true else { continue }
                told.note(who.offset, to: ruling.pairs[pair], who.operation)
            }
        }
        told.asked += question.rows.count
    }

    /// Whether memberships were as they were then, as far as they are known.
    var isExact: Bool { memberships.isExact }
}
