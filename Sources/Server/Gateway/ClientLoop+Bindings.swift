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
            // An answer under way would be to what was asked before, perhaps for another role.
            channel.ticket = 0
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
        bound(channel)
    }

    private func bound(_ channel: Channel) {
        if channel.isOpen { sayWhatBindingsCameTo(channel) } else { finishJoin(channel) }
    }

    /// The database is away: asked again in a while, for as long as the channel lives. Meanwhile the join is answered.
    private func bindLater(_ channel: Channel) {
        loop.after(
            nanoseconds: Limits.bindAgainInterval.wholeNanoseconds,
            token: TimerToken.bind(channel: channel.place, generation: channel.id.incarnation).rawValue)
    }

    func bindingIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation), channel.ticket == 0 else { return }
        if bind(place, channel) { bound(channel) }
    }

    /// Another token, and so perhaps another role: what the channel had is looked at anew and said again.
    func resubscribe(_ place: UInt32, _ channel: Channel) {
        for index in channel.bindings.indices { channel.bindings[index].said = .nothing }
        if bind(place, channel) { sayWhatBindingsCameTo(channel) }
    }

    // MARK: Placing

    private func apply(_ outcomes: [BindingOutcome], to channel: Channel) {
        for (request, outcome) in zip(channel.requests(), outcomes) {
            switch outcome {
            case .tables(let tables): place(tables, request.binding, channel)
            case .failed(let message):
                place([], request.binding, channel)
                note(.failed([message]), request.binding, channel)
            case .unavailable: preconditionFailure("an outcome that is none")
            }
        }
    }

    private func place(_ tables: [TableBinding], _ index: Int, _ channel: Channel) {
        let old = channel.bindings[index].tables
        let visible = tables.filter { if case .rowSecurity = $0.access { false } else { true } }
        if old.count != visible.count || zip(old, visible).contains(where: { !$0.binding.isSame(as: $1) }) {
            for placed in old { remove(placed) }
            channel.bindings[index].tables = visible.map { add($0, index, channel) }
        }
        note(Self.rowSecurity(of: tables).map { .failed([$0]) } ?? .subscribed, index, channel)
    }

    /// A binding with a wildcard can mean many such tables: they are said at once.
    private static func rowSecurity(of tables: [TableBinding]) -> String? {
        let refused = tables.compactMap { table -> (name: String, text: String)? in
            guard case .rowSecurity(let text) = table.access else { return nil }
            return ("\(table.table.schema).\(table.table.name)", text)
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
        pipeline.declare(binding.table)
        let view = pipeline.courier.views.take(binding.viewKey)
        let member = pipeline.courier.audience.add(
            Member(listener: listener, view: view, binding: UInt8(index)))
        let handle = pipeline.courier.index.add(
            table: binding.table.oid, operations: OperationSet(binding.operations),
            predicate: binding.predicate ?? .always, member: member)
        shared.catalog.addBindings(1)
        Metrics.shared.subscriptions.add(1)
        return Channel.Placed(binding: binding, member: member, view: view, handle: handle)
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
        let listener = pipeline.courier.audience.listeners.add(
            Listener(
                connection: channel.session.connection, channel: channel.place, version: channel.session.version,
                topic: channel.topic, ids: channel.bindings.map(\.id), isLegacy: channel.isLegacy,
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
        guard var work = rebinding.take() else { return .done }
        var left = Limits.rebindingsPerTurn
        while left > 0, work.next < channels.indices.upperBound {
            defer { work.next += 1 }
            guard let channel = channels[work.next], channel.isAnswered || channel.reply != nil else { continue }
            left -= 1
            if bind(work.next, channel) {
                bound(channel)
            } else {
                work.await(channel.place)
            }
        }
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
            guard !channel.hasUnanswered else { continue }
            channel.hasUnanswered = true
            tell(channel, .error, "A filter could not be evaluated: changes are missing, fetch them again")
        }
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
            && operations == other.operations && access == other.access
    }

    var viewKey: ViewKey {
        let shape: ViewKey.Shape =
            switch access {
            case .readable, .rowSecurity: .rows
            case .unauthorized: .refused(.unauthorized)
            case .noPrimaryKey: .refused(.noPrimaryKey)
            }
        return ViewKey(table: table, delivered: delivered, shape: shape)
    }
}

extension OperationSet {
    init(_ operations: RowOperations) { self.init(rawValue: operations.rawValue) }
}
