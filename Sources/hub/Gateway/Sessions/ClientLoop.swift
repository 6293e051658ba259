import Bytes
import Channels
import Delivery
import Diagnostics
import Net
import Protocol
import Synchronization
import System
import WebSocket

/// State that all loops share. The gateway creates it at its start. All of it is safe to use from any thread.
final class GatewayShared: Sendable {
    let settings: GatewaySettings
    let metrics: ProcessMetrics
    let process: ProcessWatch
    /// Log of refused clients whose project is not known.
    let refusals = RefusalLog(project: nil)
    let directory = ProjectDirectory()
    private let filters: HolderBudget
    private let presence: HolderBudget
    private let operated = Mutex<(any Operators)?>(nil)
    /// Number of loops that have disconnected all of their clients before the hub stops.
    let saidFarewell = Atomic<Int>(0)

    init(_ settings: GatewaySettings, _ metrics: ProcessMetrics) {
        self.settings = settings
        self.metrics = metrics
        process = ProcessWatch(metrics)
        filters = HolderBudget(.filterParts, metrics.filterParts, metrics.filtersRefused)
        presence = HolderBudget(.presence, metrics.presenceBytes, metrics.presenceRefused)
    }

    /// Returns a project's budgets. One project may use at most half of what all clients together may use.
    func budgets() -> ProjectBudgets {
        ProjectBudgets(
            input: InputBudget(Limits.unfinishedInputBytes / 2, of: settings.sockets.inputBudget),
            filters: filters.share(), presence: presence.share())
    }

    /// Handler of operators' requests; nil while the hub starts.
    var operators: (any Operators)? {
        get { operated.withLock { $0 } }
        set { operated.withLock { $0 = newValue } }
    }
}

/// Clients of one loop: connections, requests and messages. Their channels belong to their project's `ProjectLoop`.
///
/// Only the loop's own thread may use a ClientLoop. Other threads send mail.
final class ClientLoop: SocketApplication {
    let shared: GatewayShared
    let mailbox: Mailbox<LoopMail>
    /// Index among the gateway's loops.
    let number: Int
    /// Socket loop that serves the clients. `started(on:)` sets it before any other call.
    var loop: SocketLoop!
    private(set) var sessions: [Session?] = []
    /// Projects on this loop, by number.
    private(set) var projects: [ProjectLoop?] = []
    /// Index of the project that begins the next turn. The index changes each turn, so that no project is always last.
    private var first = 0
    var largeInput = LargeInput()
    private(set) lazy var output = ClientOutput(of: self)
    private(set) lazy var requests = ClientRequests(of: self)
    private(set) lazy var frames = ClientFrames(of: self)
    private(set) lazy var feeds = ClientFeeds(of: self)
    private(set) lazy var refusals = JoinRefusals(of: self)
    private(set) lazy var receipts = ReceiptChecks(of: self)
    private(set) lazy var farewells = Farewells(of: self)

    init(_ shared: GatewayShared, _ mailbox: Mailbox<LoopMail>, number: Int) {
        self.shared = shared
        self.mailbox = mailbox
        self.number = number
    }

    var metrics: ProcessMetrics { shared.metrics }

    func started(on loop: SocketLoop) {
        self.loop = loop
        mailbox.attach(loop.bell)
    }

    func opened(_ connection: ConnectionID, from peer: PeerAddress, isSecure: Bool) {
        let seat = Int(connection.seat)
        while sessions.count <= seat { sessions.append(nil) }
        assert(sessions[seat] == nil, "a seat is given again when its client has gone")
        let session = Session(connection, from: peer)
        sessions[seat] = session
        session.timer = loop.after(
            nanoseconds: Limits.requestTimeLimit.wholeNanoseconds, token: TimerToken.request(connection).rawValue)
    }

    func session(_ connection: ConnectionID) -> Session? {
        guard Int(connection.seat) < sessions.count, let session = sessions[Int(connection.seat)],
            session.connection == connection
        else { return nil }
        return session
    }

    /// Returns the session to which a timer belongs. The timer's token holds only the low bits of the connection's
    /// generation.
    func session(ofTimer connection: ConnectionID) -> Session? {
        guard Int(connection.seat) < sessions.count, let session = sessions[Int(connection.seat)],
            TimerToken.cut(session.connection.generation) == connection.generation
        else { return nil }
        return session
    }

    /// Replaces a connection's session by a new one, after the answer to an HTTP request has ended.
    func replace(_ session: Session, with next: Session) {
        assert(sessions[Int(session.connection.seat)] === session, "a session is replaced in its own seat")
        sessions[Int(session.connection.seat)] = next
    }

    func received(_ connection: ConnectionID, _ bytes: inout MutableRawSpan) -> Int {
        guard let session = session(connection) else { return bytes.byteCount }
        switch session.stage {
        case .request:
            let count = requests.receiveHead(session, &bytes)
            // A client may send the next request, or the first frames, without waiting for the answer.
            if count > 0, count < bytes.byteCount { loop.redeliverInput(connection) }
            return count
        case .body:
            let count = requests.receiveBody(session, &bytes)
            if count < bytes.byteCount { loop.redeliverInput(connection) }
            return count
        case .answering, .feed, .streaming: return 0
        case .client:
            let held = bytes.byteCount + (session.frames?.unfinishedBytes ?? 0)
            if largeInput.mustWait(connection, holding: held, mayGrow: session.terms.wantsCompression) {
                loop.pauseReading(connection)
                return 0
            }
            return frames.receive(session, &bytes)
        case .echo: return frames.receive(session, &bytes)
        case .refused, .ending: return bytes.byteCount
        }
    }

    func peerStoppedReading(_ connection: ConnectionID) {
        guard let session = session(connection) else { return }
        session.project?.returns.fixSentOffsets(session)
    }

    func closed(_ connection: ConnectionID, _ end: ConnectionEnd) {
        guard let session = session(connection) else { return }
        session.request.waiting?.leave()
        sessions[Int(connection.seat)] = nil
        if let timer = session.timer { loop.cancel(timer) }
        guard session.machine != nil else { return }
        if session.feed != nil { return feeds.forget(session) }
        metrics.sessions.add(-1)
        leaveAll(session, end.sentence)
        assert(session.channels.isEmpty, "a session that has gone has no channels")
        assert(session.use.filterParts == 0 && session.use.presenceBytes == 0, "a session that has gone holds no room")
        session.machine = nil
        session.project?.project.users.hasEnded(session)
    }

    func wentIdle(_ connection: ConnectionID) {
        // A feed's client has nothing to send, and neither has an operator who reads a stream.
        guard let session = session(connection), session.feed == nil else { return }
        if case .streaming = session.stage { return }
        say(.normal, "nothing was received for too long", to: session)
    }

    func filled(_ connection: ConnectionID) {
        guard let session = session(connection) else { return }
        session.isSlow = true
        session.project?.park(session)
    }

    func drained(_ connection: ConnectionID) {
        guard let session = session(connection) else { return }
        session.isSlow = false
        session.project?.unpark(session)
    }

    func fellBehind(_ connection: ConnectionID, queuedBytes: Int) {
        guard let session = session(connection) else { return }
        session.metrics?.drops[.slowConsumer].add()
        if session.feed != nil { return feeds.abandon(session) }
        // The loss is not final: a client that reconnects joins again and fetches its data.
        say(.tryAgainLater, "too slow: connect again and fetch what was missed", to: session)
    }

    func hasNoRoom(_ connection: ConnectionID) {
        unfinished(
            connection, .tryAgainLater, .serviceUnavailable, "too much of large messages is unfinished: try again")
    }

    func tookTooLong(_ connection: ConnectionID) {
        let seconds = Limits.unfinishedInputLimit.components.seconds
        unfinished(connection, .policyViolation, .requestTimeout, "a message was not finished within \(seconds) s")
    }

    private func unfinished(_ connection: ConnectionID, _ code: CloseCode, _ status: HTTPStatus, _ reason: String) {
        guard let session = session(connection) else { return }
        switch session.stage {
        case .client, .echo: say(code, reason, to: session)
        case .request, .body: requests.answer(session, .error(status, reason), keepAlive: false)
        case .feed: feeds.abandon(session)
        case .streaming: requests.streams.cut(session)
        case .refused, .answering, .ending: loop.close(connection, afterFlushing: .zero)
        }
    }

    /// Sends a close frame, and closes the connection.
    func say(_ code: CloseCode, _ reason: String, to session: Session) {
        switch session.stage {
        case .client, .echo:
            sayFarewell(to: session, "the hub closed the socket (\(reason))") { writer in
                FrameEncoder.appendClose(code, reason, to: &writer)
            }
        case .feed(let feed): feeds.cut(feed, session, FeedEnding.Reason(code: "\(code.feedCode)", reason))
        case .ending: break
        case .streaming: requests.streams.cut(session)
        case .request, .refused, .body, .answering: loop.close(session.connection, afterFlushing: Limits.farewellLimit)
        }
    }

    /// Sends the close frame that the closure writes, and ends the client's channels. After this call the hub sends
    /// nothing more to the client.
    ///
    /// - Parameter end: reason why the socket ends, for the ledger.
    func sayFarewell(to session: Session, _ end: String, _ write: (inout ByteWriter) -> Void) {
        assert(session.stage.isWebSocket, "a close frame is the last one of a WebSocket")
        session.stage = .ending
        output.send(to: session, write)
        loop.close(session.connection, afterFlushing: Limits.farewellLimit)
        leaveAll(session, end)
    }

    func leaveAll(_ session: Session, _ end: String) {
        session.past.end = session.past.end ?? end
        var actions: [ChannelAction] = []
        session.machine?.socketGone(into: &actions)
        perform(actions, for: session)
        // Other clients must learn who left, even if the loop's turn is over.
        loop.turnAgain()
    }

    // MARK: Projects

    func project(_ project: Project) -> ProjectLoop? {
        let number = Int(project.number)
        guard number < projects.count, let known = projects[number], known.project === project else { return nil }
        return known
    }

    /// Returns the loop's part of the project that the request's host name selects, and creates the part if necessary.
    /// A request may arrive before this loop has read the mail about a new project, or about a project's end.
    func served(_ request: HTTPRequest) throws(NotServed) -> ProjectLoop { arrived(try project(of: request)) }

    /// Returns the project that the request's host name selects. For a name without a project, the settings decide.
    /// Another project never replaces a known project that does not run.
    func project(of request: HTTPRequest) throws(NotServed) -> Project {
        let host = request.host?.text ?? ""
        switch shared.directory.project(
            label: request.host?.label, unknown: shared.settings.unknownHosts, main: shared.settings.mainProject)
        {
        case .known(let project): return project
        case .standIn(let project):
            shared.refusals.note(.unknownHostServed, host: host, at: loop.now)
            return project
        case .absent(let absence): throw .unavailable(absence.sentence)
        case .none:
            guard shared.operators != nil else { throw .unavailable("the hub is starting") }
            shared.refusals.note(.unknownHost, host: host, at: loop.now)
            throw .unknown
        }
    }

    @discardableResult
    private func arrived(_ project: Project) -> ProjectLoop {
        if let known = self.project(project) { return known }
        while projects.count <= Int(project.number) { projects.append(nil) }
        precondition(projects[Int(project.number)] == nil, "a number is given again when its project has gone")
        let arriving = ProjectLoop(project, self)
        projects[Int(project.number)] = arriving
        return arriving
    }

    private func left(_ project: Project) {
        guard let leaving = self.project(project) else { return }
        leaving.disconnectAll()
        projects[Int(project.number)] = nil
        project.hasLeft(loop: number)
    }

    private func project(_ place: ChannelPlace) -> ProjectLoop? {
        Int(place.project) < projects.count ? projects[Int(place.project)] : nil
    }

    // MARK: Mail

    func drainMailbox() {
        for mail in mailbox.takeAll() {
            switch mail {
            case .arrived(let project): arrived(project)
            case .left(let project): left(project)
            case .answered(let connection, let response): requests.answerLater(connection, response)
            case .streamed(let connection, let part): requests.streams.send(part, to: connection)
            case .drain: farewells.begin()
            case .hurry: farewells.hurry()
            }
        }
        for case let project? in projects { LogScope.of(project.project.name) { project.drainMailbox() } }
    }

    func turn() -> Bool {
        if let rest = largeInput.beginTurn(loop.now) {
            loop.after(nanoseconds: rest, token: TimerToken.largeInput.rawValue)
        }
        while let connection = largeInput.takeNext(), !loop.resumeReading(connection) {}
        var more = largeInput.someAreDue
        for step in projects.indices {
            guard let project = projects[(first + step) % projects.count] else { continue }
            more = LogScope.of(project.project.name) { project.turn() } || more
        }
        first = projects.isEmpty ? 0 : (first + 1) % projects.count
        return more
    }

    // MARK: Timers

    func timeIsUp(_ token: UInt64) {
        switch TimerToken(rawValue: token) {
        case .request(let connection): requests.tookTooLong(connection)
        case .refusal(let place): refusals.isDue(place)
        case .expiry(let place, let generation): project(place)?.tokens.tokenIsDue(place.channel, generation)
        case .join(let place, let generation): project(place)?.joins.tookTooLong(place.channel, generation)
        case .bind(let place, let generation): project(place)?.bindingIsDue(place.channel, generation)
        case .loss(let place, let generation): project(place)?.reports.lossIsDue(place.channel, generation)
        case .lack(let place, let generation): project(place)?.reports.lackIsDue(place.channel, generation)
        case .space(let place): project(place)?.follower(place.channel)?.thereMayBeSpace()
        case .unwind(let place): project(place)?.follower(place.channel)?.policies.unwindingIsDue()
        case .ready(let place, let generation): project(place)?.talk.readinessIsDue(place.channel, generation)
        case .reread(let place): project(place)?.looksAgain()
        case .largeInput: largeInput.restIsOver()
        case .receipts: receipts.areDue()
        case .farewells: farewells.areDue()
        case .standings(let place): project(place)?.standings.areDue()
        case .sentRecord(let place): project(place)?.ledger.sentRecordIsDue()
        case nil: break
        }
    }
}

/// Number of a project and index of a channel in it. A timer's token holds both in 32 bits.
struct ChannelPlace: Equatable {
    let project: UInt32
    var channel: UInt32 = 0

    static let channelBits: UInt32 = 22

    var number: UInt32 {
        assert(channel < 1 << Self.channelBits, "a channel's place leaves room for its project")
        assert(project < 1 << (UInt32.bitWidth - Int(Self.channelBits)), "a project's number has room beside a place")
        return project << Self.channelBits | channel
    }

    init(project: UInt32, channel: UInt32 = 0) {
        self.project = project
        self.channel = channel
    }

    init(number: UInt32) {
        self.init(project: number >> Self.channelBits, channel: number & (1 << Self.channelBits - 1))
    }
}

extension ConnectionEnd {
    /// Reason as a text for people.
    fileprivate var sentence: String {
        switch self {
        case .byPeer: return "the client closed the connection"
        case .failed(let code):
            let error = SystemError(operation: "use", subject: "socket", code: code)
            return error.isReset ? "the connection was reset" : "the connection failed (\(error.reason))"
        case .tlsFailed: return "TLS failed"
        case .closedHere, .closedUnfinished: return "the hub closed the connection"
        case .fellBehind: return "the client read too slowly"
        case .inputTooLong: return "the client sent too much, or too slowly"
        case .stopped: return "the hub stopped"
        }
    }
}
