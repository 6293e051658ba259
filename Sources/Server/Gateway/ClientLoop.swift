import Auth
import Bytes
import Channels
import Diagnostics
import EventLog
import Net
import Protocol
import Synchronization
import System
import WebSocket

/// What all loops share: set when the gateway starts, and safe to use from any thread.
final class GatewayShared: Sendable {
    let settings: GatewaySettings
    let catalog: CatalogService
    let judge: Judge
    let policyJudge: PolicyJudge
    let recall: RecallService
    let logEnd: @Sendable () -> EventLogEnd?
    let condition: @Sendable () -> Condition
    let verifier: Mutex<TokenVerifier>
    /// Policies that were decided otherwise than by PostgreSQL, once: they are left to it.
    private let demoted = Mutex<[PolicyBinding]>([])
    private let mailboxes = Mutex<[Mailbox]>([])
    /// A loop failed to read the log: its clients are refused.
    let cannotRead = Atomic<Bool>(false)

    init(
        _ settings: GatewaySettings, _ catalog: CatalogService, _ judge: Judge, _ policyJudge: PolicyJudge,
        _ recall: RecallService, _ verifier: TokenVerifier, logEnd: @escaping @Sendable () -> EventLogEnd?,
        condition: @escaping @Sendable () -> Condition
    ) {
        self.settings = settings
        self.catalog = catalog
        self.judge = judge
        self.policyJudge = policyJudge
        self.recall = recall
        self.verifier = Mutex(verifier)
        self.logEnd = logEnd
        self.condition = condition
    }
}

extension GatewayShared {
    func add(_ mailbox: Mailbox) { mailboxes.withLock { $0.append(mailbox) } }

    func isDemoted(_ policy: PolicyBinding) -> Bool { demoted.withLock { $0.contains { $0 === policy } } }

    /// For all loops; until the policy, or what it means, is another.
    func demote(_ policy: PolicyBinding) {
        let isNews = demoted.withLock { demoted in
            if demoted.contains(where: { $0 === policy }) { return false }
            if demoted.count >= Limits.maximumDemotedPolicies { demoted.removeFirst() }
            demoted.append(policy)
            return true
        }
        guard isNews else { return }
        for mailbox in mailboxes.withLock({ $0 }) { mailbox.post(.demoted) }
    }
}

/// One loop's clients: their requests, their channels, and the changes they hear of.
///
/// Everything in it belongs to the loop's thread. What comes from elsewhere comes by mail.
final class ClientLoop: SocketApplication {
    let shared: GatewayShared
    let mailbox: Mailbox
    /// Set by the first call, before any other.
    var loop: SocketLoop!
    var sessions: [Session?] = []
    var channels = Slots<Channel>()
    var messages: MessageDecoder?
    var tokens: TokenCache
    let inflater = Inflater()
    var pipeline: Pipeline
    /// Where messages to single clients are written.
    var writer = ByteWriter(capacity: 4096)
    var frame = ByteWriter(capacity: 4096)
    var refusals = Slots<Refusal>()
    var isDraining = false
    private var isLookingAgain = false
    private var crowdedSince: UInt64?
    private var isWaitingForSpace = false
    /// The catalog's answers that are under way, by ticket.
    var lastTicket: UInt64 = 0
    /// Channels whose bindings have to be looked at again, and how far that has come.
    var rebinding: Rebinding?
    /// Whom policies judge.
    var holders = HolderTable()
    let deflater: Deflater?

    init(_ shared: GatewayShared, _ mailbox: Mailbox) {
        self.shared = shared
        self.mailbox = mailbox
        tokens = TokenCache(shared.verifier.withLock { $0 }, capacity: Limits.rememberedTokens)
        deflater = shared.settings.deflates ? Deflater(level: Limits.compressionLevel) : nil
        pipeline = Pipeline(shared, deflater)
    }

    func started(on loop: SocketLoop) {
        self.loop = loop
        shared.add(mailbox)
        mailbox.attach(loop.bell)
    }

    func opened(_ connection: ConnectionID, from peer: PeerAddress, isSecure: Bool) {
        let slot = Int(connection.slot)
        while sessions.count <= slot { sessions.append(nil) }
        let session = Session(connection)
        sessions[slot] = session
        session.timer = loop.after(
            nanoseconds: Limits.requestTimeLimit.wholeNanoseconds, token: TimerToken.request(connection).rawValue)
    }

    func session(_ connection: ConnectionID) -> Session? {
        guard Int(connection.slot) < sessions.count, let session = sessions[Int(connection.slot)],
            session.connection == connection
        else { return nil }
        return session
    }

    func received(_ connection: ConnectionID, _ bytes: inout MutableRawSpan) -> Int {
        guard let session = session(connection) else { return bytes.byteCount }
        switch session.stage {
        case .request:
            let count = receiveRequest(session, &bytes)
            // Some do not wait for the answer: the next request follows, or the first frames.
            if count > 0, count < bytes.byteCount { loop.showAgain(connection) }
            return count
        case .client, .echo: return receiveFrames(session, &bytes)
        case .refused, .ending: return bytes.byteCount
        }
    }

    func closed(_ connection: ConnectionID, _ end: ConnectionEnd) {
        guard let session = session(connection) else { return }
        sessions[Int(connection.slot)] = nil
        if let timer = session.timer { loop.cancel(timer) }
        guard session.machine != nil else { return }
        Metrics.shared.sessions.add(-1)
        leaveAll(session)
        session.machine = nil
    }

    func wentIdle(_ connection: ConnectionID) {
        guard let session = session(connection) else { return }
        say(.normal, "nothing was received for too long", to: session)
    }

    func fellBehind(_ connection: ConnectionID, queuedBytes: Int) {
        Metrics.shared.drops[.slowConsumer].add()
        guard let session = session(connection) else { return }
        // Resumable: a client that comes back joins again and fetches what it shows.
        say(.tryAgainLater, "too slow: connect again and fetch what was missed", to: session)
    }

    /// A close frame, and the end.
    func say(_ code: CloseCode, _ reason: String, to session: Session) {
        switch session.stage {
        case .client, .echo:
            writer.removeAll()
            FrameEncoder.appendClose(code, reason, to: &writer)
            sayFarewell(to: session)
        case .ending: break
        case .request, .refused: loop.close(session.connection, afterFlushing: Limits.farewellLimit)
        }
    }

    /// Sends the close frame that was written. Nothing is matched or kept for the client from here on.
    func sayFarewell(to session: Session) {
        session.stage = .ending
        Self.send(writer, to: session, on: loop)
        loop.close(session.connection, afterFlushing: Limits.farewellLimit)
        leaveAll(session)
    }

    private func leaveAll(_ session: Session) {
        var actions: [ChannelAction] = []
        session.machine?.socketGone(into: &actions)
        perform(actions, for: session)
    }

    // MARK: Mail

    func rung() {
        for mail in mailbox.takeAll() {
            switch mail {
            case .resolved(let channel, let ticket, let outcomes): resolved(channel, ticket, outcomes)
            case .catalogMoved: catalogMoved()
            case .refreshed(let isKnown):
                pipeline.catalogRefreshed(isKnown)
                if !isKnown { lookAgainLater() }
            case .judged(let ticket, let answers): judged(ticket, answers)
            case .judgedByPolicy(let ticket, let answers): judged(ticket, answers)
            case .recalled(let ticket, let answers): pipeline.recalled(ticket, answers)
            case .evaluated(let holder, let ticket, let answers): evaluated(holder, ticket, answers)
            case .filled(let answers): filled(answers)
            case .demoted: demotePolicies()
            case .keys: tokens = TokenCache(shared.verifier.withLock { $0 }, capacity: Limits.rememberedTokens)
            case .drain: drain()
            }
        }
    }

    func turn() -> Bool {
        pipeline.openIfBegun(on: loop)
        if !pipeline.isOpen { lookAgainLater() }
        let rebound = continueRebinding()
        fillMemberships()
        guard rebound == .done else { return rebound == .more }
        if isCrowded() { return false }
        let more = pipeline.run(on: loop, mailbox)
        followMemberships()
        fillMemberships()
        demoteContradicted()
        tellOfLosses()
        for gap in pipeline.takeGaps() { tellOfGap(gap) }
        if pipeline.hasFailed {
            shared.cannotRead.store(true, ordering: .relaxed)
            end(.internalError, "the event log cannot be read")
        }
        return more
    }

    /// The log is read at the speed of memory, and what it has waits for those who cannot take it as fast: for a while.
    private func isCrowded() -> Bool {
        guard pipeline.courier.isCrowded(loop.now) || loop.isCrowded else {
            crowdedSince = nil
            return false
        }
        let since = crowdedSince ?? loop.now
        // After a while it is read on for one turn.
        crowdedSince = loop.now - since < Limits.crowdPatience.wholeNanoseconds ? since : nil
        guard crowdedSince != nil else { return false }
        if !isWaitingForSpace {
            isWaitingForSpace = true
            Metrics.shared.readerStalls.add()
            loop.after(nanoseconds: Limits.crowdInterval.wholeNanoseconds, token: TimerToken.space.rawValue)
        }
        return true
    }

    /// The log has not begun, or the catalog is away: there is no bell for that.
    private func lookAgainLater() {
        guard !isLookingAgain else { return }
        isLookingAgain = true
        loop.after(nanoseconds: Limits.bindAgainInterval.wholeNanoseconds, token: TimerToken.reread.rawValue)
    }

    /// New clients and joins are refused; those that are here are sent elsewhere.
    private func drain() {
        isDraining = true
        end(.serviceRestart, "the server restarts")
    }

    /// What is committed stays in the log, and nobody can say what of it may be seen: those who wait for it are told.
    private func sendFollowersAway() {
        for place in channels.indices {
            guard let channel = channels[place], !channel.bindings.isEmpty else { continue }
            Metrics.shared.drops[.unanswered].add()
            say(
                .tryAgainLater, "the database cannot be asked: connect again and fetch what was missed",
                to: channel.session)
        }
    }

    private func end(_ code: CloseCode, _ reason: String) {
        for session in sessions {
            if let session { say(code, reason, to: session) }
        }
    }

    // MARK: Timers

    func timeIsUp(_ token: UInt64) {
        switch TimerToken(rawValue: token) {
        case .request(let connection): requestTookTooLong(connection)
        case .expiry(let channel, let generation): tokenIsDue(channel, generation)
        case .refusal(let place): refusalIsDue(place)
        case .join(let channel, let generation): joinTookTooLong(channel, generation)
        case .bind(let channel, let generation): bindingIsDue(channel, generation)
        case .loss(let channel, let generation): lossIsDue(channel, generation)
        case .space: isWaitingForSpace = false
        case .reread:
            isLookingAgain = false
            pipeline.askAgain(mailbox)
            if pipeline.takeTiredOfWaiting(loop.now) { sendFollowersAway() }
        case nil: break
        }
    }
}

/// What a timer is for, in 64 bits: the kind, the number of what it concerns, and the incarnation of that.
enum TimerToken {
    case request(ConnectionID)
    case expiry(channel: UInt32, generation: UInt32)
    /// A refusal is to be told.
    case refusal(UInt32)
    case join(channel: UInt32, generation: UInt32)
    /// A channel's bindings are to be asked for again.
    case bind(channel: UInt32, generation: UInt32)
    /// The pipeline wants another turn.
    case reread
    /// A channel may be told again that changes are missing.
    case loss(channel: UInt32, generation: UInt32)
    /// There may be space again in what is queued for clients.
    case space

    private static let generationBits: UInt64 = 28
    private static let generationMask: UInt64 = (1 << generationBits) - 1

    static func cut(_ generation: UInt32) -> UInt32 { generation & UInt32(generationMask) }

    var rawValue: UInt64 {
        switch self {
        case .request(let id): Self.pack(0, id.slot, id.generation)
        case .expiry(let channel, let generation): Self.pack(1, channel, generation)
        case .refusal(let place): Self.pack(2, place, 0)
        case .join(let channel, let generation): Self.pack(3, channel, generation)
        case .reread: Self.pack(4, 0, 0)
        case .bind(let channel, let generation): Self.pack(5, channel, generation)
        case .loss(let channel, let generation): Self.pack(6, channel, generation)
        case .space: Self.pack(7, 0, 0)
        }
    }

    private static func pack(_ kind: UInt64, _ number: UInt32, _ generation: UInt32) -> UInt64 {
        kind << 60 | UInt64(number) << generationBits | UInt64(generation) & generationMask
    }

    init?(rawValue: UInt64) {
        let number = UInt32(truncatingIfNeeded: rawValue >> Self.generationBits)
        let generation = UInt32(rawValue & Self.generationMask)
        switch rawValue >> 60 {
        case 0: self = .request(ConnectionID(slot: number, generation: generation))
        case 1: self = .expiry(channel: number, generation: generation)
        case 2: self = .refusal(number)
        case 3: self = .join(channel: number, generation: generation)
        case 4: self = .reread
        case 5: self = .bind(channel: number, generation: generation)
        case 6: self = .loss(channel: number, generation: generation)
        case 7: self = .space
        default: return nil
        }
    }
}
