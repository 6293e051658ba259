import Asking
import Catalog
import Change
import Diagnostics
import EventLog
import History
import Judging
import Policy
import Postgres
import System

/// Time of the memberships with which the explainer evaluated a change.
enum MembershipTime {
    /// The present memberships, because those at the change could not be computed. The text is the reason.
    case now(String)
    case then
    /// Memberships at the time of the change, without the effect of changes that the log does not have yet or no longer
    /// has.
    case thenAsFarAsTheLogGoes
    /// Unknown: the log does not show enough. With a database, too, they could not be computed back.
    case unknown(hasDatabase: Bool)

    fileprivate var sentence: String {
        switch self {
        case .now(let reason):
            "memberships are as they are now, not as they were when the change was committed: \(reason)"
        case .then: "memberships are as they were when the change was committed, by the log"
        case .unknown(hasDatabase: false):
            "the log alone does not have all memberships; with a database, they are computed back from those of now"
        case .unknown(hasDatabase: true):
            "memberships at the commit of the change are unknown: the log does not show all of them, and those of now cannot be computed back (a table of memberships was truncated since, or the log has a gap)"
        case .thenAsFarAsTheLogGoes:
            "memberships are as they were when the change was committed, by the log; changes after the log's end are not included"
        }
    }
}

/// Evaluation of a change's old and new row as the server does it, one part of a policy after the other.
extension Explainer {
    func judge(
        _ binding: TableBinding, _ question: Question, _ explanation: inout Explanation
    ) throws(ExplainFailure) {
        let change = question.change
        let filters = filterParts(question.filter, binding, question)
        let isDelete = change.operation == .delete
        // As in the reference server, all clients that asked for deletes receive all of them.
        let isOpen = isDelete && !settings.deletesAreStrict
        let held = try binding.policy.flatMap { policy throws(ExplainFailure) in
            isOpen ? nil : try hold(policy, question)
        }
        var judged = JudgedImages(binding: binding, filters: filters, held: held)
        explanation.image = image(&judged, change, isOld: isDelete, &explanation.withoutPostgres)
        if binding.readsOldRow, change.operation == .update, change.oldImage != .full {
            explanation.notes.append(
                "the server looks for the row before the update in its event log, which this explanation does not")
        }
        if change.operation == .update, change.oldImage != .none {
            let image = image(&judged, change, isOld: true, &explanation.withoutPostgres)
            explanation.oldImage = image
            explanation.oldRecord = oldRecord(change, isVisible: image.isVisible)
            if change.oldImage == .key, !image.isVisible, settings.deletesAreStrict {
                explanation.notes.append(
                    "the former key is told if the server's event log has the old row, and the user may see it")
            }
        }
        if isDelete {
            explanation.oldRecord = isOpen && binding.policy != nil || change.oldImage != .full ? .keys : .whole
            if isOpen, binding.policy != nil {
                explanation.notes.append(
                    "delete_visibility is reference: policies do not judge deletes, and only keys are sent")
            }
        }
        if let warning = binding.policy?.warning { explanation.notes.append(warning) }
        if let held, !held.memberships.isEmpty {
            explanation.notes.append(held.membershipsAreOf.sentence)
        }
    }

    /// Returns the columns of the old row that an update sends to the client: none, the key, or all.
    private func oldRecord(_ change: RecordedChange, isVisible: Bool) -> Explanation.OldRecord {
        assert(change.operation == .update && change.oldImage != .none, "only an update with an old image shows of it")
        if isVisible { return change.oldImage == .full ? .whole : .keys }
        return settings.deletesAreStrict ? .none : .keys
    }

    // MARK: The holder's part of the policies

    /// Part of a policy's condition, with the holder's claims in it.
    struct HeldPart {
        var part: PolicyPart
        var residual: Residual
    }

    /// Policies of a table for one holder, with the holder's claims and memberships in them.
    struct Held {
        var policy: PolicyBinding
        var subject: PolicySubject
        var whole: Residual
        /// Parts of each policy, in the order of `policy.parts`.
        var parts: [[HeldPart]]
        var memberships: [HeldMembership: (keys: MembershipKeys, trouble: String?)] = [:]
        var membershipsAreOf = MembershipTime.then

        func keys(_ residual: Residual) -> [MembershipKeys] {
            let unfilled = residual.memberships.first { memberships[$0] == nil }
            assert(unfilled == nil, "each membership of the holder was filled before the row is judged")
            return residual.memberships.map { memberships[$0]?.keys ?? Held.unknown }
        }

        static let unknown = MembershipKeys(keys: [], hasNull: false, hasRows: false, isUnknown: true)
    }

    /// Returns the policies with the holder's claims in them; asks PostgreSQL for the values that they need.
    private func hold(_ policy: PolicyBinding, _ question: Question) throws(ExplainFailure) -> Held {
        let holder = question.holder
        let subject = PolicySubject(role: holder.role, claims: holder.claims, identity: 0)
        let parts = policy.parts.map { recorder.parts(of: $0, on: policy.table) }
        var answers: [AskedTerm: AskedAnswer] = [:]
        // The first answers may show that more terms have to be evaluated.
        for _ in 0..<8 {
            var needs: Set<AskedTerm> = []
            for term in parts.joined().map(\.term) + [policy.rowPolicy.term] {
                if case .needs(let terms) = residual(term, holder, answers) { needs.formUnion(terms) }
            }
            needs.subtract(answers.keys)
            if needs.isEmpty { break }
            guard let found = evaluate(needs, subject) else { break }
            answers.merge(found) { _, newest in newest }
        }
        let left = { (term: Term) in
            if case .residual(let residual) = self.residual(term, holder, answers) {
                residual
            } else {
                Residual.undecided
            }
        }
        var held = Held(
            policy: policy, subject: subject, whole: left(policy.rowPolicy.term),
            parts: parts.map { $0.map { HeldPart(part: $0, residual: left($0.term)) } })
        fill(&held, question.change)
        return held
    }

    private func residual(
        _ term: Term, _ holder: ExplainedHolder, _ answers: [AskedTerm: AskedAnswer]
    ) -> ResidualOutcome {
        RowPolicy(term).residual(claims: Array(holder.claims.utf8), role: Array(holder.role.utf8), answers: answers)
    }

    private func evaluate(_ terms: Set<AskedTerm>, _ subject: PolicySubject) -> [AskedTerm: AskedAnswer]? {
        guard let judge else { return nil }
        return Awaiting.answer(within: Self.patience) { judge.evaluate(Array(terms), as: subject, then: $0) } ?? nil
    }

    /// Reads the keys of the holder's memberships: from PostgreSQL, computed back to the change, or else from the log
    /// alone.
    private func fill(_ held: inout Held, _ change: RecordedChange) {
        let residuals = [held.whole] + held.parts.joined().map(\.residual)
        let wanted = Array(Set(residuals.flatMap(\.memberships)))
        guard !wanted.isEmpty else { return }
        let subject = held.subject
        guard let judge else { return fillFromLog(&held, wanted, change) }
        let fills = Awaiting.answer(within: Self.patience) { then in
            judge.fill(wanted.map { ($0.membership, subject) }, seeing: nil, then: then)
        }
        do throws(NotComputedBack) {
            guard let fills else { throw .noAnswer }
            let keys = try keys(of: wanted, as: fills, at: change)
            held.membershipsAreOf = keys.time
            for (membership, keys) in zip(wanted, keys.keys) { held.memberships[membership] = (keys, nil) }
            return
        } catch {
            // The present memberships would be a guess, and the log may show those that matter.
            if error == .notExact { return fillFromLog(&held, wanted, change) }
            held.membershipsAreOf = .now(error.rawValue)
        }
        for (index, membership) in wanted.enumerated() {
            held.memberships[membership] = keys(membership, fills?[index] ?? .unavailable, subject)
        }
    }

    /// Reads memberships from the log. Only the keys that the change's own row refers to matter, and the log may show
    /// just these.
    private func fillFromLog(_ held: inout Held, _ wanted: [HeldMembership], _ change: RecordedChange) {
        held.membershipsAreOf = .then
        let logged = logged(wanted, change)
        assert(logged == nil || logged?.count == wanted.count, "the log is asked about each membership")
        let rows = rows(of: change, in: held.policy.table)
        for (index, membership) in wanted.enumerated() {
            guard let logged, let keys = keys(membership, logged[index], held, rows) else {
                let why =
                    judge == nil
                    ? "the log does not have it, and there is no database to ask" : "the log does not have it"
                held.memberships[membership] = (Held.unknown, why)
                held.membershipsAreOf = .unknown(hasDatabase: judge != nil)
                continue
            }
            held.memberships[membership] = (keys, nil)
        }
    }

    private func logged(_ wanted: [HeldMembership], _ change: RecordedChange) -> [LoggedMembership]? {
        guard let log = settings.log, let snapshot, past != nil || judge != nil else { return nil }
        let sets = wanted.map { held in
            Ruling.Members(held: held, table: snapshot.followed(held.membership.table), fill: .unavailable)
        }
        guard sets.allSatisfy({ $0.table != nil }) else { return nil }
        var memberships = PastMemberships(sets, snapshot, lost: log.lost)
        return (try? memberships.logged(by: log, at: change)) ?? nil
    }

    private func rows(of change: RecordedChange, in table: UInt32) -> [ExplainedRow] {
        guard let table = snapshot?.related(table) else { return [] }
        let images =
            change.operation == .update && change.oldImage != .none ? [false, true] : [change.operation == .delete]
        return images.map { ExplainedRow(change, isOld: $0, of: table, atThatTime: past != nil) }
    }

    /// Returns the membership's keys among the key values in the given rows. Nil if for one of these values the log
    /// shows neither that it is a key nor that it is none.
    private func keys(
        _ membership: HeldMembership, _ logged: LoggedMembership, _ held: Held, _ rows: [ExplainedRow]
    ) -> MembershipKeys? {
        if logged.isKnown { return logged.given }
        var isKnown = true
        let settings = FilterCheck.Settings.ofPolicies(snapshot)
        for term in [held.whole.term] + held.parts.joined().map(\.residual.term) {
            term.visit { term in
                guard case .member(membership.membership, let key) = term else { return }
                let alone = Residual(
                    term: .member(membership.membership, key: key), memberships: [membership], mayAsk: false)
                for row in rows {
                    isKnown =
                        isKnown
                        && [logged.given, logged.missing].contains { keys in
                            row.read { alone.value(on: $0, keys: [keys], settings: settings) }
                                == .value(Array("t".utf8))
                        }
                }
            }
        }
        return isKnown ? logged.given : nil
    }

    /// Returns the memberships' keys at the commit of the change. The present keys are computed back by the logged
    /// changes of their tables. Throws if the log does not have enough of these changes.
    private func keys(
        of wanted: [HeldMembership], as fills: [MembershipFill], at change: RecordedChange
    ) throws(NotComputedBack) -> (keys: [MembershipKeys], time: MembershipTime) {
        guard let log = settings.log, let snapshot else { throw .noLog }
        let sets = zip(wanted, fills).map { held, fill in
            Ruling.Members(held: held, table: snapshot.followed(held.membership.table), fill: fill)
        }
        let isRead = sets.allSatisfy { set in
            if case .filled = set.fill { set.table != nil } else { false }
        }
        guard isRead else { throw .notRead }
        var past = PastMemberships(sets, snapshot, lost: log.lost)
        // All changes of the change's own transaction already count for it.
        let isDone =
            (try? past.takeBack(
                log, to: .offset(change.offset), from: change.offset, keeping: change.transaction.xid)) != nil
        guard isDone, let end = (try? log.segments())?.last?.lastLSN else { throw .unreadableLog }
        guard past.isExact else { throw .notExact }
        let isWhole = sets.allSatisfy { set in
            if case .filled(let rows) = set.fill { rows.position.rawValue <= end } else { false }
        }
        return (past.keys(of: Array(sets.indices)), isWhole ? .then : .thenAsFarAsTheLogGoes)
    }

    /// Reason why the memberships at a change cannot be computed back from the present ones.
    private enum NotComputedBack: String, Error {
        case noAnswer = "the database did not answer"
        case noLog = "no log is read"
        case notRead = "a table of memberships is not in the log, or cannot be read"
        case unreadableLog = "the log cannot be read"
        /// The log lacks the effect of some change, such as a truncation of the table.
        case notExact = "the log does not show what changed since"
    }

    /// Converts PostgreSQL's answer to the keys of a membership. `trouble` is the reason if the keys are not reliable.
    private func keys(
        _ held: HeldMembership, _ fill: MembershipFill, _ subject: PolicySubject
    ) -> (keys: MembershipKeys, trouble: String?) {
        guard snapshot?.related(held.membership.table) != nil else { return (Held.unknown, "its table is not known") }
        switch fill {
        case .filled(let rows): return (rows.keys(of: held.membership), nil)
        case .failed(let state):
            return (
                MembershipKeys(keys: [], hasNull: false, hasRows: false, hasFailed: true),
                "PostgreSQL refuses to read it (\(state))"
            )
        case .unreadable:
            return (Held.unknown, "it is too large, or may not be read here: PostgreSQL is asked about each row")
        case .unavailable: return (Held.unknown, "it could not be read")
        }
    }

    // MARK: Images

    /// Filter and policies by which the old and the new row of a change are evaluated.
    struct JudgedImages {
        var binding: TableBinding
        var filters: [(text: String, depth: Int, predicate: Predicate)]
        var held: Held?
    }

    /// Evaluates filter and policies for the old or the new row of the change.
    private func image(
        _ judged: inout JudgedImages, _ change: RecordedChange, isOld: Bool, _ withoutPostgres: inout String?
    ) -> Explanation.Image {
        let row = ExplainedRow(change, isOld: isOld, of: judged.binding.table, atThatTime: past != nil)
        let before = judged.binding.readsOldRow ? rowBefore(change, judged) : nil
        // A filter that reads the row before the change is evaluated on both rows at once.
        let isFiltered = before == nil || !isOld || change.operation == .delete
        let filter = isFiltered ? judged.filters.map { filterPart($0, row, before) } : []
        var image = Explanation.Image(
            isOld: isOld, missing: [], filter: filter,
            passesFilter: filter.first.map { ($0.hub == .undecided ? $0.postgres : $0.hub)?.isTrue ?? false } ?? true,
            policies: [], combined: nil, memberships: [], isVisible: true)
        var read = Set(judged.filters.flatMap { $0.predicate.columns })
        if let held = judged.held {
            read.formUnion(held.policy.row.columns.filter(\.isNeeded).map(\.slot))
            judge(held, row, judged.binding.table, &image, &withoutPostgres)
        }
        image.missing = read.sorted().filter(row.isAbsent).map { judged.binding.table.columns[$0].name }
        if let before, isFiltered, before.use == .known {
            let ofOldRow = Set(judged.filters.flatMap { $0.predicate.oldColumns }).sorted()
            image.missing += ofOldRow.filter(before.row.isAbsent).map { "old.\(judged.binding.table.columns[$0].name)" }
        }
        return image
    }

    /// Row before a change, with the use that a filter may make of it.
    private typealias RowBefore = (row: ExplainedRow, use: RowImage.OldRow)

    private func rowBefore(_ change: RecordedChange, _ judged: JudgedImages) -> RowBefore {
        let row = ExplainedRow(change, isOld: true, of: judged.binding.table, atThatTime: past != nil)
        switch change.operation {
        case .delete: return (row, .deleted)
        case .update: break
        case .insert, .truncate, .message: return (row, .none)
        }
        guard let held = judged.held else { return (row, .known) }
        let settings = FilterCheck.Settings.ofPolicies(snapshot)
        let sight = ExplainedTruth(
            row.read { held.whole.value(on: $0, keys: held.keys(held.whole), settings: settings) })
        return (row, sight.isTrue ? .known : sight == .undecided ? .undecided : .none)
    }

    private func filterPart(
        _ filter: (text: String, depth: Int, predicate: Predicate), _ row: ExplainedRow, _ before: RowBefore?
    ) -> Explanation.Part {
        let verdict =
            if filter.predicate.readsOldRow, let before {
                row.read(before: before.row, before.use) { filter.predicate.verdict(on: $0) }
            } else {
                row.read { filter.predicate.verdict(on: $0) }
            }
        var part = Explanation.Part(
            depth: filter.depth, text: filter.text, isCondition: true, hub: ExplainedTruth(verdict))
        if verdict == .ask, let asked = filter.predicate.question {
            part.postgres = JudgedQuestion(asked, row: asked.slots.map { row.values[$0] }).map(ask)
        }
        return part
    }

    private func ask(_ question: JudgedQuestion) -> ExplainedTruth {
        guard let database = settings.database, let judge = try? FilterEvaluator(database) else {
            return .failed("PostgreSQL could not be asked")
        }
        defer { judge.stop() }
        let answer = Awaiting.answer(within: Self.patience) { judge.ask([question], then: $0) }
        switch answer?.first ?? nil {
        case true?: return .value("t")
        case false?: return .value("f")
        case nil: return .failed("PostgreSQL could not be asked")
        }
    }

    private func judge(
        _ held: Held, _ row: ExplainedRow, _ table: CatalogTable, _ image: inout Explanation.Image,
        _ withoutPostgres: inout String?
    ) {
        assert(held.parts.count == held.policy.parts.count, "each policy has its parts")
        let settings = FilterCheck.Settings.ofPolicies(snapshot)
        let value = { (residual: Residual) in
            ExplainedTruth(row.read { residual.value(on: $0, keys: held.keys(residual), settings: settings) })
        }
        let expressions =
            [held.policy.combinedSQL]
            + zip(held.policy.parts, held.parts).flatMap { policy, parts in
                [policy.text] + parts.dropFirst().map(\.part.sql)
            }
        var answers = asked(expressions, held, row, &withoutPostgres)?[...]
        let next = { (isCondition: Bool) in
            answers?.popFirst().map { ExplainedTruth($0, isCondition: isCondition) }
        }
        let combined = Explanation.Part(
            depth: 0, text: "all policies together", isCondition: true, hub: value(held.whole), postgres: next(true))
        image.policies = zip(held.policy.parts, held.parts).map { policy, parts in
            Explanation.Policy(
                name: policy.name, isPermissive: policy.isPermissive, classification: policy.classification.rawValue,
                text: policy.text.split(whereSeparator: \.isWhitespace).joined(separator: " "),
                parts: parts.map { held in
                    Explanation.Part(
                        depth: held.part.depth, text: held.part.text, isCondition: held.part.isCondition,
                        readsClock: held.part.readsClock, hub: value(held.residual),
                        postgres: next(held.part.isCondition))
                })
        }
        image.combined = combined
        // The policies' condition can never be true, although there are permissive policies. The warning gives the
        // reason.
        if held.policy.rowPolicy.term == .never, image.policies.contains(where: \.isPermissive) {
            image.refusal = held.policy.warning
        }
        image.isVisible = (combined.hub == .undecided ? combined.postgres : combined.hub)?.isTrue ?? false
        image.memberships = memberships(held, row, table)
    }

    private func asked(
        _ expressions: [String], _ held: Held, _ row: ExplainedRow, _ withoutPostgres: inout String?
    ) -> [ExplainedValue]? {
        let columns = held.policy.row.columns
        if let absent = columns.first(where: { $0.isNeeded && row.isAbsent($0.slot) }) {
            withoutPostgres = "the row's image does not hold \(absent.name), which the policies read"
            return nil
        }
        if case .unknown(hasDatabase: true) = held.membershipsAreOf {
            withoutPostgres = "it knows only the memberships of now, and the log does not show those at the change"
            return nil
        }
        guard expressions.count <= Limits.maximumExplainedExpressions else {
            withoutPostgres = "the policies have too many parts"
            return nil
        }
        let explanation = PolicyExplanation(
            row: held.policy.row, texts: columns.map { row.text($0.slot) },
            subject: held.subject, expressions: expressions)
        guard let judge else {
            withoutPostgres = nobodyToAsk
            return nil
        }
        let answer = Awaiting.answer(within: Self.patience) { judge.explain(explanation, then: $0) } ?? nil
        if answer == nil { withoutPostgres = nobodyToAsk }
        return answer
    }

    private var nobodyToAsk: String {
        switch judge?.availability {
        case nil: "there is no database to ask"
        case .refused(let reason, let hint): "no login is fit to run policies: \(reason); \(hint)"
        case .unknown, .available: "it could not be reached as the login that runs policies"
        }
    }

    private func memberships(_ held: Held, _ row: ExplainedRow, _ table: CatalogTable) -> [Explanation.Membership] {
        held.whole.memberships.map { membership in
            let known = held.memberships[membership]
            let followed = snapshot?.related(membership.membership.table)
            var holdsKey: Bool?
            held.whole.term.visit { term in
                guard case .member(membership.membership, let key) = term else { return }
                let alone = Residual(
                    term: .member(membership.membership, key: key), memberships: [membership], mayAsk: false)
                let value = row.read {
                    alone.value(
                        on: $0, keys: held.keys(alone), settings: FilterCheck.Settings.ofPolicies(snapshot))
                }
                if value != .unknown { holdsKey = value == .value(Array("t".utf8)) }
            }
            return Explanation.Membership(
                table: followed.map { "\($0.schema).\($0.name)" } ?? "?", keyCount: known?.keys.keys.count ?? 0,
                holdsKey: holdsKey, trouble: known?.trouble)
        }
    }
}
