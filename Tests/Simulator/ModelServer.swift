import Asking
import Authorizing
import Catalog
import Change
import Delivery
import Diagnostics
import EventLog
import Foundation
import Judging
import Policy
import System
import TestSupport

@testable import Messages

/// Services on which the hub depends. As a seed determines, they answer late, wrongly or not at all.
final class ModelServer {
    enum Kind: Int, CaseIterable { case catalog, rows, claims, members, filters, recall, pace, messages }

    let database: ModelDatabase
    let time: VirtualTime
    let agenda: Agenda
    private var randoms: [SeededRandom]
    /// Virtual time in nanoseconds until which the services give no answers.
    private var awayUntil: UInt64 = 0
    /// Virtual time in nanoseconds until which some answers are lost.
    private var losesUntil: UInt64 = 0
    private(set) var lost = 0
    /// True if the server takes seconds to evaluate policies on rows.
    private let isSluggish: Bool

    init(_ database: ModelDatabase, _ time: VirtualTime, _ agenda: Agenda, seed: UInt64, isSluggish: Bool) {
        self.isSluggish = isSluggish
        self.database = database
        self.time = time
        self.agenda = agenda
        randoms = Kind.allCases.map { SeededRandom(seed: seed &* 31 &+ UInt64($0.rawValue)) }
    }

    func delay(_ kind: Kind) -> UInt64 {
        let pick = UInt64.random(in: 0..<100, using: &randoms[kind.rawValue])
        return switch pick {
        case ..<25 where isSluggish && kind == .rows: UInt64.random(in: 500...4_500, using: &randoms[kind.rawValue])
        case ..<50: UInt64.random(in: 0...2, using: &randoms[kind.rawValue])
        case ..<90: UInt64.random(in: 1...30, using: &randoms[kind.rawValue])
        default: UInt64.random(in: 30...700, using: &randoms[kind.rawValue])
        }
    }

    func chance(_ kind: Kind, percent: UInt64) -> Bool {
        UInt64.random(in: 0..<100, using: &randoms[kind.rawValue]) < percent
    }

    var isAway: Bool { time.monotonicNanoseconds() < awayUntil }

    func beAway(milliseconds: UInt64) {
        awayUntil = max(awayUntil, time.monotonicNanoseconds() + milliseconds * 1_000_000)
    }

    func loseAnswers(milliseconds: UInt64) {
        losesUntil = max(losesUntil, time.monotonicNanoseconds() + milliseconds * 1_000_000)
    }

    /// True if a search of the log now takes longer than the hub waits for its result.
    var searchIsSlow: Bool { time.monotonicNanoseconds() < losesUntil && chance(.pace, percent: 30) }

    func isLost(_ kind: Kind) -> Bool {
        let isLost = isAway || time.monotonicNanoseconds() < losesUntil && chance(kind, percent: 30)
        if isLost { lost += 1 }
        return isLost
    }
}

/// Evaluator that decides policies by the model in place of PostgreSQL.
final class ModelPolicyEvaluator: PolicyEvaluating, @unchecked Sendable {
    // Only the simulation's single thread touches this property.
    private let world: ModelServer

    init(_ world: ModelServer) { self.world = world }

    var availability: PolicyAvailability { .available }

    func ask(_ questions: [PolicyQuestion], seeing xid: UInt32?, then: @escaping @Sendable ([PolicyAnswers]) -> Void) {
        let isLost = world.isLost(.rows)
        world.agenda.after(milliseconds: world.delay(.rows)) {
            then(
                questions.map { question in
                    var answers = PolicyAnswers(question)
                    guard !isLost else { return answers }
                    guard self.canMake(question.policy.row) else {
                        for row in question.rows.indices {
                            for subject in question.subjects.indices { answers.fail(row, subject) }
                        }
                        return answers
                    }
                    let persons = question.subjects.map { self.person($0) }
                    for (row, texts) in question.rows.enumerated() {
                        let judged = Self.judged(question.policy.row, texts)
                        for (place, person) in persons.enumerated() {
                            guard let judged, let person else { continue }
                            answers[row, place] = ModelDatabase.decides(
                                person, owner: judged.owner, version: judged.version)
                        }
                    }
                    return answers
                })
        }
    }

    /// True if the table has the row's columns now. If not, PostgreSQL fails on the row.
    private func canMake(_ row: JudgedRow) -> Bool {
        let rules = world.database.snapshot(at: world.time.monotonicNanoseconds()).last?.rules ?? ModelRules()
        return row.columns.count == ModelPolicies.columns(rules.extras(of: .judged)).count
    }

    /// Returns those values of the row that the policy reads.
    private static func judged(_ row: JudgedRow, _ texts: [String?]) -> (owner: String, version: Int)? {
        let values = Dictionary(uniqueKeysWithValues: zip(row.columns.map(\.name), texts))
        guard row.relation == ModelTable.judged.name, let owner = values["owner"] ?? nil,
            let version = (values["version"] ?? nil).flatMap({ Int($0) })
        else { return nil }
        return (owner, version)
    }

    private var persons: [String: String] = [:]

    /// Returns the person that the claims name.
    private func person(_ subject: PolicySubject) -> String? {
        if let known = persons[subject.claims] { return known }
        let claims = try? JSONSerialization.jsonObject(with: Data(subject.claims.utf8)) as? [String: Any]
        let person = claims?["sub"] as? String
        persons[subject.claims] = person
        return person
    }

    func evaluate(
        _ terms: [AskedTerm], as subject: PolicySubject, then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void
    ) {
        preconditionFailure("the model's policies ask nothing of claims: \(terms.map(\.sql))")
    }

    /// Provides the members' keys from a snapshot that the server takes a moment later.
    func fill(
        _ memberships: [(membership: Membership, subject: PolicySubject)], seeing xid: UInt32?,
        then: @escaping @Sendable ([MembershipFill]) -> Void
    ) {
        let world = world
        world.agenda.after(milliseconds: world.delay(.members)) {
            let isLost = world.isLost(.members)
            let snapshot = world.database.snapshot(at: world.time.monotonicNanoseconds())
            let members = snapshot.last?.members ?? [:]
            let position = world.database.walEnd
            let fills = memberships.map { _, subject -> MembershipFill in
                guard !isLost, let visible = VisibleTransactions(snapshot.text), let person = self.person(subject)
                else { return .unavailable }
                let keys = members[person, default: [:]].sorted { $0.key < $1.key }.filter { $0.value > 0 }
                return .filled(
                    FilledMembership(
                        keys: keys.map { FilledMembership.Key(text: Array("\($0.key)".utf8), count: $0.value) },
                        snapshot: visible, position: position))
            }
            world.agenda.after(milliseconds: world.delay(.members)) { then(fills) }
        }
    }

    func look(
        _ sight: RowVisibilityQuestion, seeing xid: UInt32?, then: @escaping @Sendable (RowVisibilityAnswer?) -> Void
    ) {
        world.agenda.after(milliseconds: world.delay(.rows)) { then(nil) }
    }

    func compute(_ requests: [GenerationRequest], then: @escaping @Sendable ([[[GeneratedValue]]]) -> Void) {
        preconditionFailure("the model has no generated columns")
    }

    func stop() {}
}

/// Evaluator that must never be asked: the hub itself decides all of the model's filters.
final class ModelFilterEvaluator: FilterEvaluating {
    func ask(_ batch: [JudgedQuestion], then: @escaping @Sendable ([Bool?]) -> Void) {
        preconditionFailure("the model's filters ask nothing")
    }

    func convert(_ values: [ValueConversion], then: @escaping @Sendable ([ColumnText]) -> Void) {
        then(values.map { _ in .absent })
    }

    func stop() {}
}

/// Search for earlier rows in the log, like the hub's own service, with answers after a random delay.
final class ModelRecall: RowRecalling, @unchecked Sendable {
    // Only the simulation's single thread touches these properties.
    private let world: ModelServer
    private let lookup: RecallLookup
    private let pace: SearchTime

    init(_ world: ModelServer, _ storage: any StorageDirectory) {
        self.world = world
        let pace = SearchTime(world.time)
        self.pace = pace
        lookup = RecallLookup(pace, ProjectMetrics()) { () throws(SystemError) in storage }
    }

    func find(_ request: RecallRequest, then: @escaping @Sendable ([RecallAnswer]) -> Void) {
        find(request, triesLeft: 20, then)
    }

    private func find(
        _ request: RecallRequest, triesLeft: Int, _ then: @escaping @Sendable ([RecallAnswer]) -> Void
    ) {
        pace.stepNanoseconds = world.searchIsSlow ? 700_000_000 : 0
        let answers = lookup.answers(request, isLastTry: triesLeft == 0)
        let delay = world.delay(.recall)
        world.agenda.after(milliseconds: answers == nil ? 50 : delay) { [self] in
            if let answers { then(answers) } else { find(request, triesLeft: triesLeft - 1, then) }
        }
    }

    func stop() {}
}

/// Time source of a search. If the search is slow, each call that reads the time also moves it forward.
private final class SearchTime: TimeSource, @unchecked Sendable {
    private let time: VirtualTime
    // Only the simulation's single thread touches these properties.
    private var passed: UInt64 = 0
    var stepNanoseconds: UInt64 = 0

    init(_ time: VirtualTime) { self.time = time }

    func monotonicNanoseconds() -> UInt64 {
        passed += stepNanoseconds
        return time.monotonicNanoseconds() + passed
    }

    func unixMicroseconds() -> Int64 { time.unixMicroseconds() }
}

/// Authorizer that must never be asked: the model has no private channels, and no requests for past messages.
final class NoAuthorizer: ChannelAuthorizing {
    func ask(_ question: ChannelQuestion, then: @escaping @Sendable (ChannelAnswer) -> Void) {
        preconditionFailure("the model has no private channels")
    }

    func stop() {}
}

/// Archive of messages that reads the real log. It answers late or not at all. Without an answer, the hub leaves the
/// messages out and tells the client. Each answer covers few messages, so that the hub must ask again.
final class ModelArchive: MessageReplaying, @unchecked Sendable {
    private static let offsetsOfAnswer: UInt64 = 40

    // Only the simulation's single thread touches these properties.
    private let world: ModelServer
    private let end: () -> EventLogEnd?
    private var log: MessageLog

    init(_ world: ModelServer, _ storage: FaultyStorage, end: @escaping () -> EventLogEnd?) {
        self.world = world
        self.end = end
        log = MessageLog(maximumPlaces: Limits.archivedMessages) { () throws(SystemError) in storage }
    }

    func replay(_ query: ReplayQuery, then: @escaping @Sendable (ReplayAnswer) -> Void) { then(.failed) }

    func revisions(since offset: UInt64, then: @escaping @Sendable (MessageRevisions?) -> Void) {
        let isLost = world.isLost(.messages)
        world.agenda.after(milliseconds: world.delay(.messages)) { [self] in
            then(isLost ? nil : try? answer(since: offset))
        }
    }

    /// Reads the log as the real archive's worker does. Like there, an error means that the question gets no answer.
    private func answer(since offset: UInt64) throws -> MessageRevisions? {
        guard let end = end() else { return nil }
        try log.follow(end)
        while log.beginOffset > offset, log.canReachBack { try log.reachBack() }
        let whole = try log.revisions(since: offset)
        let covered = offset..<min(offset + Self.offsetsOfAnswer, whole.offsets.upperBound)
        let fates = covered.map { ($0, whole.fate(of: $0)) }
        let knownFrom = fates.first { $0.1 != .unknown }?.0 ?? covered.upperBound
        let changed = fates.filter { $0.1 != .unchanged && $0.0 >= knownFrom }
        return MessageRevisions(of: covered, knownFrom: knownFrom, Dictionary(uniqueKeysWithValues: changed))
    }

    func stop() {}
}
