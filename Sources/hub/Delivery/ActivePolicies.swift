import Bytes
import Catalog
import Change
import Diagnostics
import Judging
import Matching
import Policy

/// A holder's policy on one table, as deliveries see it.
struct PolicyEntry {
    /// What of the policy is left for this holder.
    var predicate: Predicate
    let policy: PolicyBinding
    let table: CatalogTable
    /// What PostgreSQL is told of a row: all its columns, as the table has them.
    let columns: [RowTexts.Wanted]
    let claimant: Claimant
    /// The change for which `past` holds.
    fileprivate var change: UInt64 = 0
    fileprivate var past = Past.hidden

    /// Whether the row as it was before a change may be seen.
    fileprivate enum Past {
        case shown
        case hidden
        case asked(PendingQuestion)
    }

    var judged: JudgedPolicy { policy.judged }

    init(_ predicate: Predicate, _ policy: PolicyBinding, of table: CatalogTable, _ claimant: Claimant) {
        self.predicate = predicate
        self.policy = policy
        self.table = table
        precondition(policy.table == table.oid, "a policy judges rows of its own table")
        columns = policy.row.columns.map {
            RowTexts.Wanted(table.columns[$0.slot], isNeeded: $0.isNeeded)
        }
        self.claimant = claimant
    }
}

/// The policies that hold on one loop. Their numbers are what predicates call an asker.
struct ActivePolicies {
    private(set) var entries = Slots<PolicyEntry>()
    var sampling = ShadowSampling()

    var nextNumber: UInt32 { entries.nextIndex }

    mutating func add(_ entry: PolicyEntry) -> UInt32 { entries.add(entry) }
    mutating func remove(_ number: UInt32) { entries.remove(number) }

    mutating func replace(_ predicate: Predicate, of number: UInt32) {
        assert(entries.contains(number), "a policy that is replaced holds")
        entries[number]?.predicate = predicate
    }

    /// In what form a member sees a change whose new row it may see; the change says of the old row what is known of it.
    mutating func seen(
        by member: Member, _ change: borrowing ReadableChange, _ moment: ChangeRouter.Moment,
        _ index: inout PredicateIndex, _ views: inout ViewTable, _ asked: inout AskedQuestions
    ) throws(ByteError) -> Seen {
        guard moment.hasPast, member.policy != Member.noPolicy else { return Seen(view: member.view) }
        if entries[member.policy]?.change != moment.number {
            let past = try past(member.policy, change, moment, &index, &asked)
            entries[member.policy]?.past = past
            entries[member.policy]?.change = moment.number
        }
        switch entries[member.policy]?.past {
        case .shown: return Seen(view: member.view)
        case .asked(let question):
            return Seen(view: member.view, masked: views.masked(member.view), question: question)
        case .hidden, nil: return Seen(view: views.masked(member.view))
        }
    }

    private func past(
        _ number: UInt32, _ change: borrowing ReadableChange, _ moment: ChangeRouter.Moment,
        _ index: inout PredicateIndex, _ asked: inout AskedQuestions
    ) throws(ByteError) -> PolicyEntry.Past {
        assert(moment.hasPast, "there is an old row to be seen")
        guard let entry = entries[number] else { return .hidden }
        // Of a row that is known by its key only, the key may be enough to decide.
        switch try index.verdict(of: entry.predicate, onKnownOldImageOf: change.change) {
        case .yes: return .shown
        case .no, .unknown, .notYes, .failed: return .hidden
        case .ask:
            guard !isUnknown(number, at: moment.commitLSN) else { return .hidden }
            let question = PendingQuestion()
            return try ask(number, question, change, .old, moment.number, &asked) ? .asked(question) : .hidden
        }
    }

    /// What a member's policy alone says of one image of a row.
    func verdict(
        _ member: Member, on change: borrowing Change, _ image: RowTexts.Image, _ index: inout PredicateIndex
    ) throws(ByteError) -> Verdict {
        guard member.policy != Member.noPolicy else { return .yes }
        guard let entry = entries[member.policy] else { return .no }
        let verdict: Verdict =
            if image == .old, change.operation != .delete {
                try index.verdict(of: entry.predicate, onOldImageOf: change)
            } else {
                try index.verdict(of: entry.predicate, on: change)
            }
        return verdict
    }

    /// True if nobody can tell any more who might see a row that was committed there, because the policy leaves that to
    /// PostgreSQL.
    func isUnknown(_ number: UInt32, at position: LSN) -> Bool {
        entries[number]?.policy.isUnknown(at: position) ?? false
    }

    /// Has PostgreSQL asked whether a row may be seen. False where the row lacks a column that the policy looks at, so that
    /// it cannot be asked.
    func ask(
        _ number: UInt32, _ pending: PendingQuestion, _ change: borrowing ReadableChange,
        _ image: RowTexts.Image, _ moment: UInt64, _ asked: inout AskedQuestions
    ) throws(ByteError) -> Bool {
        guard let entry = entries[number] else { return false }
        let key = AskedQuestions.RowKey(policy: entry.judged.identity, change: moment, isOld: image == .old)
        if !asked.has(key) {
            guard let texts = try RowTexts.texts(of: entry.columns, in: change.change, change.relation, image)
            else { return false }
            asked.begin(key, entry.judged, texts)
        }
        asked.add(pending, entry.claimant, to: key)
        return true
    }
}

/// What is asked about a row for the members of one node.
struct NodeQuestions {
    /// What their filter, which they share, says of the row …
    let verdict: Verdict
    /// … and what PostgreSQL is asked where it leaves that open.
    let filter: Question?
    let hasFilter: Bool
    var ofFilter: PendingQuestion?
    /// Of the last policy that was asked about: a node's members most often have the same.
    var ofPolicy: (policy: UInt32, question: PendingQuestion)?

    init(_ verdict: Verdict, _ filter: Question?, hasFilter: Bool) {
        self.verdict = verdict
        self.filter = filter
        self.hasFilter = hasFilter
    }
}

/// Questions that are not sent yet.
struct AskedQuestions {
    /// A row under a policy.
    struct RowKey: Hashable {
        var policy: UInt64
        var change: UInt64
        var isOld: Bool
    }

    /// Who wants to see one row, all under the same policy.
    struct OfRow {
        let policy: JudgedPolicy
        let row: [String?]
        var claimants: [Claimant] = []
        var pending: [PendingQuestion] = []
    }

    private(set) var ofFilters: [(pending: PendingQuestion, question: JudgedQuestion)] = []
    private(set) var ofPolicies: [OfRow] = []
    private(set) var ofTables: [(ticket: UInt64, sight: TableSight)] = []
    private var places: [RowKey: Int] = [:]

    var isEmpty: Bool { ofFilters.isEmpty && ofPolicies.isEmpty && ofTables.isEmpty }

    mutating func add(_ sight: TableSight, _ ticket: UInt64) { ofTables.append((ticket, sight)) }

    mutating func add(_ pending: PendingQuestion, _ question: JudgedQuestion) { ofFilters.append((pending, question)) }

    func has(_ key: RowKey) -> Bool { places[key] != nil }

    mutating func begin(_ key: RowKey, _ policy: JudgedPolicy, _ row: [String?]) {
        assert(places[key] == nil, "a row is told once")
        assert(row.count == policy.row.columns.count, "a row has a text for each column")
        places[key] = ofPolicies.count
        ofPolicies.append(OfRow(policy: policy, row: row))
    }

    mutating func add(_ pending: PendingQuestion, _ claimant: Claimant, to key: RowKey) {
        guard let place = places[key] else { preconditionFailure("a row is told before it is asked about") }
        ofPolicies[place].claimants.append(claimant)
        ofPolicies[place].pending.append(pending)
        assert(ofPolicies[place].claimants.count == ofPolicies[place].pending.count, "each claimant has a question")
    }
}

extension FilterCheck.Settings {
    /// Of predicates that are made of policies and memberships.
    public static func ofPolicies(_ snapshot: CatalogSnapshot?) -> FilterCheck.Settings {
        FilterCheck.Settings(
            maximumListElements: Limits.maximumMembershipKeys, maximumKeys: Limits.maximumMembershipKeys,
            maximumWork: Limits.maximumFilterWork, text: snapshot?.text ?? .unknown)
    }
}
