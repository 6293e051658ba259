import Bytes
import Catalog
import Change
import Diagnostics
import Judging
import Matching
import Policy

/// Policy of one holder on one table, in the form that deliveries use.
struct PolicyEntry {
    /// Part of the policy that depends on the row: the holder's claims and membership keys are filled in.
    var predicate: Predicate
    let policy: PolicyBinding
    let table: CatalogTable
    /// Columns of the row that the hub sends to PostgreSQL when PostgreSQL must decide: all columns of the table.
    let columns: [RowTexts.Wanted]
    let subject: PolicySubject
    /// Number of the change that `past` belongs to.
    fileprivate var change: UInt64 = 0
    fileprivate var past = Past.hidden

    /// Result of checking if the holder may see the row as it was before a change. `asked` means that PostgreSQL
    /// decides.
    fileprivate enum Past {
        case shown
        case hidden
        case asked(PendingQuestion)
    }

    var judged: JudgedPolicy { policy.judged }

    init(_ predicate: Predicate, _ policy: PolicyBinding, of table: CatalogTable, _ subject: PolicySubject) {
        self.predicate = predicate
        self.policy = policy
        self.table = table
        precondition(policy.table == table.oid, "a policy judges rows of its own table")
        columns = policy.row.columns.map {
            RowTexts.Wanted(table.columns[$0.slot], isNeeded: $0.isNeeded)
        }
        self.subject = subject
    }
}

/// Policies in use on one loop. Each has a number, by which its predicates refer to it (`Predicate.asker`).
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

    /// Returns the view in which a member receives a change whose new row it may see. The view omits the old row unless
    /// the member's policy allows it. `change` holds all that is known of the old row.
    mutating func seen(
        by member: Member, _ change: borrowing ReadableChange, _ moment: ChangeMoment,
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
        _ number: UInt32, _ change: borrowing ReadableChange, _ moment: ChangeMoment,
        _ index: inout PredicateIndex, _ asked: inout AskedQuestions
    ) throws(ByteError) -> PolicyEntry.Past {
        assert(moment.hasPast, "there is an old row to be seen")
        guard let entry = entries[number] else { return .hidden }
        // If only the key of the old row is known, the key may be enough to decide.
        switch try index.verdict(of: entry.predicate, onKnownOldImageOf: change.change) {
        case .yes: return .shown
        case .no, .unknown, .notYes, .failed: return .hidden
        case .ask:
            guard !isUnknown(number, at: moment.commitLSN) else { return .hidden }
            let question = PendingQuestion()
            return try ask(number, question, change, .old, moment.number, &asked) ? .asked(question) : .hidden
        }
    }

    /// Returns the verdict of the member's policy alone on one image of a row.
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

    /// True if the hub can no longer find out who could see a row that was committed at this position. The policy reads
    /// memberships that only PostgreSQL knows, and PostgreSQL knows them only as they are now.
    func isUnknown(_ number: UInt32, at position: LSN) -> Bool {
        entries[number]?.policy.isUnknown(at: position) ?? false
    }

    /// Queues a question to PostgreSQL: may the holder see this row? Returns false if the row lacks a column that the
    /// policy reads, so that PostgreSQL could not answer.
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
        asked.add(pending, entry.subject, to: key)
        return true
    }
}

/// Questions about one row, shared by the members of one node of the predicate index.
struct NodeQuestions {
    /// Verdict on the row by the filter that all members (bindings) of the node share.
    let verdict: Verdict
    /// Question to PostgreSQL about the filter; nil if the hub could decide the filter by itself.
    let filter: Question?
    let hasFilter: Bool
    private(set) var ofFilter: PendingQuestion?
    /// Newest question about a policy. Members of a node mostly have the same policy, so the next member can share it.
    private(set) var ofPolicy: (policy: UInt32, question: PendingQuestion)?

    /// Creates the questions about a change for one node. Evaluates the node's filter with `index`.
    init(
        _ node: MatchedNode, on change: borrowing Change, _ index: inout PredicateIndex
    ) throws(ByteError) {
        verdict = try index.filterVerdict(of: node, on: change)
        filter = index.question(of: node)
        hasFilter = index.hasFilter(node)
    }

    mutating func share(ofFilter question: PendingQuestion) { ofFilter = question }
    mutating func share(_ question: PendingQuestion, of policy: UInt32) { ofPolicy = (policy, question) }
}

/// Questions to PostgreSQL that the hub has not sent yet.
struct AskedQuestions {
    /// Key of a question about a policy: one image of the row in one change, under one policy.
    struct RowKey: Hashable {
        var policy: UInt64
        var change: UInt64
        var isOld: Bool
    }

    /// Question about one row under one policy, with all holders that want to see the row.
    struct OfRow {
        let policy: JudgedPolicy
        let row: [String?]
        var subjects: [PolicySubject] = []
        var pending: [PendingQuestion] = []
    }

    private(set) var ofFilters: [(pending: PendingQuestion, question: JudgedQuestion)] = []
    private(set) var ofPolicies: [OfRow] = []
    private(set) var ofTables: [(ticket: UInt64, sight: RowVisibilityQuestion)] = []
    private var places: [RowKey: Int] = [:]

    var isEmpty: Bool { ofFilters.isEmpty && ofPolicies.isEmpty && ofTables.isEmpty }

    mutating func add(_ sight: RowVisibilityQuestion, _ ticket: UInt64) { ofTables.append((ticket, sight)) }

    mutating func add(_ pending: PendingQuestion, _ question: JudgedQuestion) { ofFilters.append((pending, question)) }

    func has(_ key: RowKey) -> Bool { places[key] != nil }

    mutating func begin(_ key: RowKey, _ policy: JudgedPolicy, _ row: [String?]) {
        assert(places[key] == nil, "a row is told once")
        assert(row.count == policy.row.columns.count, "a row has a text for each column")
        places[key] = ofPolicies.count
        ofPolicies.append(OfRow(policy: policy, row: row))
    }

    mutating func add(_ pending: PendingQuestion, _ subject: PolicySubject, to key: RowKey) {
        guard let place = places[key] else { preconditionFailure("a row is told before it is asked about") }
        ofPolicies[place].subjects.append(subject)
        ofPolicies[place].pending.append(pending)
        assert(ofPolicies[place].subjects.count == ofPolicies[place].pending.count, "each subject has a question")
    }
}
