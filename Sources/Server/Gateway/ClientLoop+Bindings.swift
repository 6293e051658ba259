import Bytes
import Channels
import Diagnostics
import Matching
import Net
import Policy
import Protocol
import System
import WebSocket

/// What channels want of the tables: asked of the catalog, placed in the predicate index, and looked at again whenever
/// the catalog moves.
extension ClientLoop {
    // MARK: Binding

    /// True when the channel's bindings are in place, or have failed for good; false when the catalog has to be asked.
    func bind(_ place: UInt32, _ channel: Channel) -> Bool {
        // Answers to what was asked before are of no use: they may be about another role.
        channel.ticket = 0
        let requests = channel.requests()
        guard !requests.isEmpty else { return true }
        var outcomes: [BindingOutcome] = []
        if pipeline.isOpen, shared.catalog.isCurrent {
            for (_, request) in requests {
                guard let outcome = shared.catalog.resolved(request) else { break }
                outcomes.append(outcome)
            }
        }
        if outcomes.count == requests.count {
            apply(outcomes, to: channel)
            rebinding?.finished(place)
            return true
        }
        ask(requests.map(\.request), place, channel)
        return false
    }

    private func ask(_ requests: [BindingRequest], _ place: UInt32, _ channel: Channel) {
        lastTicket += 1
        let ticket = lastTicket
        channel.ticket = ticket
        shared.catalog.resolve(requests) { [mailbox] outcomes, _ in
            mailbox.post(.resolved(channel: place, ticket: ticket, outcomes))
        }
    }

    func resolved(_ place: UInt32, _ ticket: UInt64, _ outcomes: [BindingOutcome]) {
        guard let channel = channels[place], channel.ticket == ticket else { return }
        channel.ticket = 0
        let isKnown = !outcomes.contains { if case .unavailable = $0 { true } else { false } }
        // Until the log is open, nothing is promised.
        guard isKnown, pipeline.isOpen else { return bindLater(channel) }
        apply(outcomes, to: channel)
        rebinding?.finished(place)
        tellThatBound(channel)
    }

    /// The client is to know what its bindings came to: in the join's reply, or after it.
    private func tellThatBound(_ channel: Channel) {
        if channel.isOpen { sayWhatBindingsCameTo(channel) } else { finishJoin(channel) }
    }

    /// The database is away: asked again in a while, for as long as the channel lives. Meanwhile the join is answered.
    private func bindLater(_ channel: Channel) {
        if let timer = channel.bindTimer { loop.cancel(timer) }
        channel.bindTimer = loop.after(
            nanoseconds: Limits.bindAgainInterval.wholeNanoseconds,
            token: TimerToken.bind(channel: channel.place, generation: channel.id.incarnation).rawValue)
    }

    func bindingIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation) else { return }
        channel.bindTimer = nil
        guard channel.ticket == 0, bind(place, channel) else { return }
        tellThatBound(channel)
    }

    /// Another token: what the channel has is said again.
    func sayAgain(_ channel: Channel) {
        for index in channel.bindings.indices { channel.bindings[index].said = .nothing }
        sayWhatBindingsCameTo(channel)
    }

    /// Another role: nothing of what the old one might see goes out any more. Where the new one's rights are not known
    /// yet, the log waits for them, so that nothing is missed either.
    func resubscribe(_ place: UInt32, _ channel: Channel) {
        for index in channel.bindings.indices { channel.bindings[index].said = .nothing }
        if bind(place, channel) { return sayWhatBindingsCameTo(channel) }
        for index in channel.bindings.indices {
            replace([], index, channel)
            channel.bindings[index].outcome = .nothing
        }
        var work = rebinding ?? Rebinding(from: channels.indices.upperBound)
        work.await(place)
        rebinding = work
    }

    // MARK: Placing

    private func apply(_ outcomes: [BindingOutcome], to channel: Channel) {
        for (request, outcome) in zip(channel.requests(), outcomes) {
            switch outcome {
            case .tables(let tables): place(tables, request.binding, channel)
            case .failed(let message):
                replace([], request.binding, channel)
                note(.failed([message]), request.binding, channel)
            case .unavailable: preconditionFailure("an outcome that is none")
            }
        }
    }

    private func place(_ tables: [TableBinding], _ index: Int, _ channel: Channel) {
        replace(tables.filter { $0.policy == nil }, index, channel)
        note(Self.rowSecurity(of: tables).map { .failed([$0]) } ?? .subscribed, index, channel)
    }

    private func replace(_ tables: [TableBinding], _ index: Int, _ channel: Channel) {
        let old = channel.bindings[index].tables
        if old.count == tables.count, zip(old, tables).allSatisfy({ stands($0, as: $1) }) { return }
        for placed in old { remove(placed) }
        channel.bindings[index].tables = tables.map { add($0, index, channel) }
    }

    /// Whether a binding is found by changes, and as it should be.
    private func stands(_ placed: Channel.Placed, as binding: TableBinding) -> Bool {
        placed.binding.isSame(as: binding) && pipeline.holds(placed.declaration, of: binding.table)
    }

    /// A binding with a wildcard can mean many such tables: they are said at once.
    private static func rowSecurity(of tables: [TableBinding]) -> String? {
        let refused = tables.compactMap { table -> (name: String, text: String)? in
            guard let policy = table.policy else { return nil }
            let name = "\(table.table.schema).\(table.table.name)"
            return (
                name,
                "Row level security is active on \(name) for role \(policy.role): "
                    + "changes are not delivered until policies are supported"
            )
        }
        guard refused.count > 1 else { return refused.first?.text }
        let names = refused.prefix(3).map(\.name).joined(separator: ", ")
        let rest = refused.count > 3 ? " and \(refused.count - 3) more tables" : ""
        return "Row level security is active on \(names)\(rest): their changes are not delivered until policies are "
            + "supported"
    }

    private func note(_ what: Channel.Said, _ index: Int, _ channel: Channel) {
        if channel.bindings[index].outcome != what {
            channel.bindings[index].outcome = what
            channel.bindings[index].said = .nothing
        }
    }

    private func add(_ binding: TableBinding, _ index: Int, _ channel: Channel) -> Channel.Placed {
        let listener = listener(of: channel)
        let declaration = pipeline.declare(binding.table)
        let view = pipeline.courier.views.take(binding.viewKey)
        let member = pipeline.courier.audience.add(
            Member(listener: listener, view: view, binding: UInt8(index)))
        let handle = pipeline.courier.index.add(
            table: binding.table.oid, operations: OperationSet(binding.operations),
            predicate: binding.predicate ?? .always, member: member)
        shared.catalog.addBindings(1)
        Metrics.shared.subscriptions.add(1)
        return Channel.Placed(
            binding: binding, declaration: declaration, member: member, view: view, handle: handle)
    }

    private func remove(_ placed: Channel.Placed) {
        pipeline.courier.index.remove(placed.handle)
        pipeline.courier.audience.removeMember(placed.member)
        pipeline.courier.views.release(placed.view)
        shared.catalog.addBindings(-1)
        Metrics.shared.subscriptions.add(-1)
    }

    private func listener(of channel: Channel) -> UInt32 {
        if let known = channel.listener { return known }
        let listener = pipeline.courier.audience.add(
            Listener(
                channel: channel.place, version: channel.session.version, topic: channel.topic,
                ids: channel.bindings.map(\.id)),
            Recipient(
                channel.session.connection, isLegacy: channel.isLegacy,
                wantsCompression: channel.session.wantsCompression))
        channel.listener = listener
        return listener
    }

    func unbind(_ channel: Channel) {
        channel.ticket = 0
        rebinding?.finished(channel.place)
        for index in channel.bindings.indices {
            for placed in channel.bindings[index].tables { remove(placed) }
            channel.bindings[index].tables = []
        }
        if let listener = channel.listener { pipeline.courier.forget(listener) }
        channel.listener = nil
    }

    // MARK: Saying

    /// Errors of single bindings first; then that the others are subscribed.
    func sayWhatBindingsCameTo(_ channel: Channel) {
        guard channel.isOpen else { return }
        var isNewlySubscribed = false
        for index in channel.bindings.indices where channel.bindings[index].said != channel.bindings[index].outcome {
            let outcome = channel.bindings[index].outcome
            channel.bindings[index].said = outcome
            switch outcome {
            case .nothing: break
            case .subscribed: isNewlySubscribed = true
            case .failed(let messages): for message in messages { tell(channel, .error, message) }
            }
            if !channel.bindings[index].tables.isEmpty { isNewlySubscribed = true }
        }
        if isNewlySubscribed { tell(channel, .ok, "Subscribed to PostgreSQL") }
    }

    // MARK: The catalog moves

    /// Tables that are others now match nothing until their bindings have been looked at again; the log is not read on
    /// before that, so nothing is missed.
    func catalogMoved() {
        guard let snapshot = shared.catalog.snapshot else { return }
        pipeline.take(snapshot)
        rebinding = Rebinding()
    }

    /// Goes through the channels, some in each turn.
    func continueRebinding() -> Rebinding.Progress {
        // An answer was newer than what the others were bound by: they are looked at before anything is read.
        if pipeline.takeReplacement() { rebinding = Rebinding() }
        guard var work = rebinding.take() else { return .done }
        var left = Limits.rebindingsPerTurn
        while left > 0, work.next < channels.indices.upperBound {
            defer { work.next += 1 }
            guard let channel = channels[work.next], channel.isAnswered || channel.reply != nil else { continue }
            left -= 1
            if bind(work.next, channel) {
                tellThatBound(channel)
            } else {
                work.await(channel.place)
            }
        }
        if pipeline.takeReplacement() { work = Rebinding() }
        let progress = work.progress(of: channels.indices.upperBound)
        rebinding = progress == .done ? nil : work
        return progress
    }

    // MARK: Losses

    /// What could not be delivered is told to those who miss it.
    func tellOfLosses() {
        let (overfull, unanswered) = pipeline.courier.takeTroubled()
        for listener in overfull {
            guard let channel = channel(ofListener: listener) else { continue }
            Metrics.shared.drops[.slowConsumer].add()
            say(
                .tryAgainLater, "a filter's answers took too long: connect again and fetch what was missed",
                to: channel.session)
        }
        for listener in unanswered {
            guard let channel = channel(ofListener: listener) else { continue }
            Metrics.shared.drops[.unanswered].add()
            channel.hasUntoldLoss = true
            if channel.lossTimer == nil { tellOfLoss(channel) }
        }
    }

    /// At once, and after that not more often than clients can sensibly fetch.
    private func tellOfLoss(_ channel: Channel) {
        channel.hasUntoldLoss = false
        tell(channel, .error, "A filter could not be evaluated: changes are missing, fetch them again")
        channel.lossTimer = loop.after(
            nanoseconds: Limits.lossInterval.wholeNanoseconds,
            token: TimerToken.loss(channel: channel.place, generation: channel.id.incarnation).rawValue)
    }

    func lossIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation) else { return }
        channel.lossTimer = nil
        if channel.hasUntoldLoss { tellOfLoss(channel) }
    }

    private func channel(ofListener listener: UInt32) -> Channel? {
        pipeline.courier.audience.listeners[listener].flatMap { channels[$0.channel] }
    }

    /// History has a hole, or begins anew: everybody who follows tables is told.
    func tellOfGap(_ reason: String) {
        for place in channels.indices {
            guard let channel = channels[place], channel.isOpen, !channel.bindings.isEmpty else { continue }
            tell(channel, .error, "Changes may be missing (\(reason)): fetch again what is shown")
        }
    }

    func judged(_ ticket: UInt64, _ answers: [Bool?]) {
        pipeline.judged(ticket, answers, on: loop)
        tellOfLosses()
    }
}

/// How far the channels have been looked at since the catalog moved.
struct Rebinding {
    enum Progress {
        case done
        /// More can be done at once.
        case more
        /// Answers of the catalog are missing.
        case waiting
    }

    var next: UInt32 = 0
    /// Channels for which the catalog's answer is missing.
    private var missing: Set<UInt32> = []

    init(from first: UInt32 = 0) { next = first }

    mutating func await(_ channel: UInt32) { missing.insert(channel) }
    mutating func finished(_ channel: UInt32) { missing.remove(channel) }

    func progress(of count: UInt32) -> Progress {
        if next < count { return .more }
        return missing.isEmpty ? .done : .waiting
    }
}

extension TableBinding {
    /// Whether it stands in the index as it is.
    func isSame(as other: TableBinding) -> Bool {
        table === other.table && predicate == other.predicate && delivered == other.delivered
            && operations == other.operations && access == other.access && policy == other.policy
    }

    var viewKey: ViewKey {
        let shape: ViewKey.Shape =
            switch access {
            case .readable: .rows
            case .unauthorized: .refused(.unauthorized)
            case .noPrimaryKey: .refused(.noPrimaryKey)
            }
        return ViewKey(table: table, delivered: delivered, shape: shape)
    }
}

extension OperationSet {
    init(_ operations: RowOperations) { self.init(rawValue: operations.rawValue) }
}
