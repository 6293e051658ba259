/// Values that a state machine uses while it handles one event: the time, the token, whether the socket is open, the
/// last ref, and random numbers.
struct Turn {
    let now: Duration
    let token: String?
    /// True if the socket is open.
    let isOpen: Bool
    var lastRef: Int
    var chance: Chance

    /// Returns a new ref, the number by which the server's reply names the client's message.
    mutating func nextRef() -> String {
        lastRef += 1
        return String(lastRef)
    }
}

/// State machine of one channel. It joins, catches up, and joins again on each new socket. Events go in; messages to
/// send and outputs for the app come out.
struct ChannelMachine: Sendable {
    enum Phase: Sendable, Hashable {
        /// The client has no open socket.
        case absent
        case joining(ref: String, deadline: Duration)
        /// The channel is joined, but the server is still sending missed changes.
        case catchingUp(ref: String)
        case live(ref: String)
        /// The channel joins again at this time, after a failure.
        case waiting(until: Duration)
        /// The server refused the token, or the token expired. The channel joins again when the client gets another
        /// token.
        case awaitingToken(TidewireProblem)
        /// The server refused this channel permanently. The channel does not join again.
        case refused(TidewireProblem)
    }

    /// Output of the machine for the queries and the room on this channel.
    enum Output: Sendable, Hashable {
        /// The channel is joined. With `recovered` the missed changes follow. Otherwise `mustRefetch` or `rowsBegin`
        /// follows, except after the first join of a channel that wants no rows.
        case joined(recovered: Bool, at: LogPosition?)
        /// All existing rows follow. They replace the rows received before.
        case rowsBegin
        case row(RowChange)
        /// All existing rows have been sent, and changes from this position on follow. The reason is nil for the first
        /// rows.
        case rowsEnd(RefetchReason?, at: LogPosition)
        case change(RowChange)
        /// The app must fetch the rows. The reason is nil the first time: the app wanted rows, but the server sends
        /// none.
        case mustRefetch(RefetchReason?)
        /// The server has sent all missed changes, up to this position.
        case caughtUp(LogPosition?)
        case problem(TidewireProblem)
        case broadcast(event: String, payload: JSONValue, bytes: [UInt8]?)
        case presenceState(JSONValue)
        case presenceDiff(JSONValue)
        /// The channel is no longer joined. It may join again.
        case lost
        /// The server answered a push, or the push failed for the given reason. The number is that of the push.
        case answered(push: Int, TidewireProblem?)
    }

    enum Action: Sendable, Hashable {
        case send(ClientMessage)
        case tell(Output)
    }

    /// Request for the existing rows (a snapshot) that the server has not answered completely.
    private struct AwaitedRows: Sendable {
        /// Reason why the rows that the app shows are no longer valid; nil for the first rows.
        var reason: RefetchReason?
        /// Position from which changes follow if the server sends no rows.
        var joinedAt: LogPosition?
        var failures = 0
    }

    /// Message whose answer the client awaits.
    private struct Push: Sendable {
        var number: Int
        var deadline: Duration
    }

    /// Maximum time to wait for the server's answer to a join or a push.
    static let patience = Duration.seconds(10)
    static let maximumPushes = 256
    /// Number of failed requests for existing rows after which the channel gives up asking.
    static let maximumRowsFailures = 6

    let request: ChannelRequest
    private(set) var phase = Phase.absent
    /// Position up to which the machine has passed all changes to the app.
    private(set) var position: LogPosition?
    private var failures = 0
    private(set) var hasJoinedBefore = false
    /// True if the server has log positions; nil before the first answered join.
    private var keepsPositions: Bool?
    /// Token with which the channel joined.
    private var joinedWith: String?
    private var awaitedRows: AwaitedRows?
    /// Problem that the server reported just before closing the channel: the reason for closing it.
    private var ending: TidewireProblem?
    /// Presence payload that the client tracks; nil if it tracks none.
    private var tracked: JSONValue?
    private var lastColumns = RowChange.LastColumns()
    private var pushes: [String: Push] = [:]

    init(_ request: ChannelRequest) {
        self.request = request
        position = request.position
        if request.wantsRows, position == nil { awaitedRows = AwaitedRows() }
    }

    private var topic: String { "realtime:" + request.topic }

    var joinRef: String? {
        switch phase {
        case .joining(let ref, _), .catchingUp(let ref), .live(let ref): ref
        case .absent, .waiting, .awaitingToken, .refused: nil
        }
    }

    var isJoined: Bool {
        switch phase {
        case .catchingUp, .live: true
        default: false
        }
    }

    // MARK: Socket

    mutating func socketOpened(_ turn: inout Turn) -> [Action] {
        switch phase {
        case .refused: return []
        case .awaitingToken where turn.token == joinedWith: return []
        default: return join(&turn)
        }
    }

    mutating func socketLost() -> [Action] {
        switch phase {
        case .refused, .awaitingToken: break
        default: phase = .absent
        }
        ending = nil
        failures = 0
        return forget(
            TidewireProblem(code: "Disconnected", message: "the connection ended before the answer", severity: .error))
    }

    /// Fails all pushes that the server has not answered, for this reason.
    private mutating func forget(_ why: TidewireProblem) -> [Action] {
        let unanswered = pushes.values.map(\.number).sorted()
        pushes = [:]
        return unanswered.map { .tell(.answered(push: $0, why)) } + [.tell(.lost)]
    }

    private mutating func join(_ turn: inout Turn) -> [Action] {
        let ref = turn.nextRef()
        phase = .joining(ref: ref, deadline: turn.now + Self.patience)
        joinedWith = turn.token
        ending = nil
        let payload = request.payload(token: turn.token, position: keepsPositions == false ? nil : position)
        return [.send(ClientMessage(joinRef: ref, ref: ref, topic: topic, event: "phx_join", payload: payload))]
    }

    // MARK: Calls of the app

    /// Sends a new token to the server immediately. A channel that was waiting for a token joins again.
    mutating func tokenChanged(_ turn: inout Turn) -> [Action] {
        switch phase {
        case .awaitingToken where turn.isOpen: return join(&turn)
        case .awaitingToken: phase = .absent
        case .catchingUp(let joined), .live(let joined), .joining(let joined, _):
            guard turn.token != joinedWith else { return [] }
            joinedWith = turn.token
            let payload: JSONValue = ["access_token": turn.token.map(JSONValue.string) ?? .null]
            return [.send(message("access_token", payload, joined: joined, &turn))]
        case .absent, .waiting, .refused: break
        }
        return []
    }

    mutating func left(_ turn: inout Turn) -> [Action] {
        guard let joined = joinRef else { return [] }
        phase = .absent
        return [.send(message("phx_leave", [:], joined: joined, &turn))]
    }

    /// Joins again from an earlier position, because a query had no room for the changes after it.
    mutating func rewind(to position: LogPosition, _ turn: inout Turn) -> [Action] {
        // A snapshot was requested and will replace all rows.
        guard awaitedRows == nil else { return [] }
        self.position = position
        return isJoined ? join(&turn) : []
    }

    var canRewind: Bool { keepsPositions != false }

    mutating func push(number: Int, event: String, payload: JSONValue, _ turn: inout Turn) -> [Action] {
        guard isJoined, let joined = joinRef else {
            return [.tell(.answered(push: number, Self.notJoined))]
        }
        guard pushes.count < Self.maximumPushes else {
            let problem = TidewireProblem(
                code: "TooManyPushes", message: "\(Self.maximumPushes) pushes of this channel wait for an answer",
                severity: .error)
            return [.tell(.answered(push: number, problem))]
        }
        let message = message(event, payload, joined: joined, &turn)
        if let ref = message.ref { pushes[ref] = Push(number: number, deadline: turn.now + Self.patience) }
        return [.send(message)]
    }

    static let notJoined = TidewireProblem(
        code: "NotJoined", message: "the channel is not joined now", severity: .error)

    /// Tracks a presence payload now and after every join. Nil stops tracking.
    mutating func track(_ payload: JSONValue?, _ turn: inout Turn) -> [Action] {
        let was = tracked
        tracked = payload
        guard isJoined, let joined = joinRef, was != nil || payload != nil else { return [] }
        return [.send(presence(payload, joined: joined, &turn))]
    }

    private func presence(_ payload: JSONValue?, joined: String, _ turn: inout Turn) -> ClientMessage {
        var body: [String: JSONValue] = ["type": "presence", "event": payload == nil ? "untrack" : "track"]
        if let payload { body["payload"] = payload }
        return message("presence", .object(body), joined: joined, &turn)
    }

    private func message(
        _ event: String, _ payload: JSONValue, joined: String, _ turn: inout Turn
    ) -> ClientMessage {
        ClientMessage(joinRef: joined, ref: turn.nextRef(), topic: topic, event: event, payload: payload)
    }

    // MARK: Messages of the server

    /// Handles a message that the server sent for the channel.
    mutating func received(_ message: ServerMessage, _ turn: inout Turn) -> [Action] {
        guard let joined = joinRef, message.joinRef == nil || message.joinRef == joined else { return [] }
        switch message.event {
        case "phx_reply":
            if case .joining(let ref, _) = phase, message.ref == ref {
                return joinAnswered(message.payload, &turn)
            }
            return pushAnswered(message)
        case "phx_close" where message.joinRef == joined || message.ref == joined:
            return closed(&turn)
        case "phx_error":
            return forget(Self.notJoined) + retry(&turn)
        case _ where !isJoined: return []
        case "postgres_changes": return changed(message.payload, &turn)
        case "system": return told(message.payload, &turn)
        case "broadcast":
            let event = message.payload["event"]?.text ?? ""
            return [
                .tell(.broadcast(event: event, payload: message.payload["payload"] ?? .null, bytes: message.bytes))
            ]
        case "presence_state": return [.tell(.presenceState(message.payload))]
        case "presence_diff": return [.tell(.presenceDiff(message.payload))]
        default: return []
        }
    }

    /// Handles the server's answer to the join.
    private mutating func joinAnswered(_ payload: JSONValue, _ turn: inout Turn) -> [Action] {
        guard let joined = joinRef else { return [] }
        let response = payload["response"] ?? .null
        guard payload["status"]?.text == "ok" else {
            return joinRefused(response["reason"]?.text ?? "the join was refused", &turn)
        }
        failures = 0
        phase = .catchingUp(ref: joined)
        var actions = standing(response["tidewire"])
        hasJoinedBefore = true
        // A server without positions does not report the end of a catch-up, because it sends no missed changes.
        if keepsPositions == false || request.bindings.isEmpty {
            phase = .live(ref: joined)
            actions.append(.tell(.caughtUp(position)))
        }
        if let tracked { actions.append(.send(presence(tracked, joined: joined, &turn))) }
        return actions
    }

    /// Reads the server's position in the answer to a join. Decides at which position the channel continues, and
    /// whether the existing rows must be fetched.
    private mutating func standing(_ told: JSONValue?) -> [Action] {
        let isFirst = position == nil && !hasJoinedBefore
        guard let told else {
            keepsPositions = false
            position = nil
            awaitedRows = nil
            let isNews = request.wantsRows || !isFirst
            return [.tell(.joined(recovered: false, at: nil))]
                + (isNews ? [.tell(.mustRefetch(isFirst ? nil : .noResume))] : [])
        }
        keepsPositions = true
        // The server has no position until its log has begun. It sends one later.
        let at = told["position"]?.text.flatMap { LogPosition($0) }
        let wasAsked = position != nil
        if wasAsked, told["recovered"]?.bool == true { return [.tell(.joined(recovered: true, at: at))] }
        let reason = wasAsked ? RefetchReason(serverReason: told["reason"]?.text) : isFirst ? nil : .noResume
        var actions = [Action.tell(.joined(recovered: false, at: at))]
        if at == nil, !request.bindings.isEmpty { actions.append(.tell(.problem(Self.logNotBegun))) }
        guard request.wantsRows else {
            position = at
            return actions + (reason.map { [.tell(.mustRefetch($0))] } ?? [])
        }
        if awaitedRows == nil { awaitedRows = AwaitedRows(reason: reason) }
        awaitedRows?.joinedAt = at
        position = nil
        return actions + [.tell(.rowsBegin)]
    }

    private static let logNotBegun = TidewireProblem(
        code: "LogNotBegun", message: "the server does not follow its database yet: changes come when it does",
        severity: .warning)

    /// Handles a refusal of the join: waits for another token, gives up, or joins again later.
    private mutating func joinRefused(_ reason: String, _ turn: inout Turn) -> [Action] {
        let code = String(reason.prefix { $0.isLetter })
        let problem = TidewireProblem(code: code, message: reason, severity: .error)
        switch code {
        case "InvalidJWTToken", "MalformedJWT", "JwtSignatureError", "JwtSignerError":
            phase = .awaitingToken(problem)
            return [.tell(.problem(problem))]
        case "Unauthorized", "PrivateOnly", "TopicNameRequired", "unmatched":
            phase = .refused(problem)
            return [.tell(.problem(problem))]
        default: return retry(&turn)
        }
    }

    /// Handles the server's answer to a push.
    private mutating func pushAnswered(_ message: ServerMessage) -> [Action] {
        guard let ref = message.ref, let push = pushes.removeValue(forKey: ref) else { return [] }
        if message.payload["status"]?.text == "ok" { return [.tell(.answered(push: push.number, nil))] }
        let response = message.payload["response"]
        let reason = response?["reason"]?.text ?? response?.text ?? "the server refused it"
        let problem = TidewireProblem(code: String(reason.prefix { $0.isLetter }), message: reason, severity: .error)
        return [.tell(.answered(push: push.number, problem))]
    }

    /// Handles the end of the channel by the server.
    private mutating func closed(_ turn: inout Turn) -> [Action] {
        let why = ending
        ending = nil
        let lost = forget(Self.notJoined)
        switch why?.code {
        case "TokenExpired", "TokenRefused":
            // The app may have set a newer token while the server was ending the channel for the old one.
            if turn.token != joinedWith { return lost + join(&turn) }
            if let why { phase = .awaitingToken(why) }
            return lost
        case "Unauthorized", "RightsLost":
            if let why { phase = .refused(why) }
            return lost
        default: return lost + retry(&turn)
        }
    }

    private mutating func retry(_ turn: inout Turn) -> [Action] {
        failures += 1
        phase = .waiting(until: turn.now + Backoff.delay(attempt: failures, chance: &turn.chance))
        return []
    }

    // MARK: Changes

    /// Handles a row change, or a row of a snapshot, that the server sent.
    private mutating func changed(_ payload: JSONValue, _ turn: inout Turn) -> [Action] {
        let behind = payload["position"]?.text.flatMap { LogPosition($0) }
        let isRow = payload["data"]?["tidewire"]?["snapshot"]?.bool == true
        guard isRow == (awaitedRows != nil) else { return [] }
        if let behind, let position, position.covers(behind) { return [] }
        // A change before this one is missing. The channel joins again to get it.
        if let previous = payload["previous"]?.text.flatMap({ LogPosition($0) }), let position,
            !position.covers(previous)
        {
            return join(&turn)
        }
        guard let change = RowChange(payload["data"] ?? .null, position: behind, &lastColumns) else {
            let problem = TidewireProblem(
                code: "Undecodable", message: "the server sent a change in a form that is not known", severity: .error)
            return [.tell(.problem(problem)), .tell(.mustRefetch(.changesMissing(problem.message)))]
        }
        if let behind { position = behind }
        return [.tell(isRow ? .row(change) : .change(change))]
    }

    /// Handles a system message of the server.
    private mutating func told(_ payload: JSONValue, _ turn: inout Turn) -> [Action] {
        let message = payload["message"]?.text ?? ""
        let code = payload["code"]?.text
        let isError = payload["status"]?.text == "error"
        let at = payload["position"]?.text.flatMap { LogPosition($0) }
        switch code {
        case "CaughtUp": return caughtUp(at, &turn)
        case "ChangesMissing": return mustRefetch(.changesMissing(message), &turn)
        case "Truncated": return mustRefetch(.truncated, &turn)
        case "SetChanged": return setChanged(&turn)
        case "SnapshotComplete": return rowsComplete(at)
        case "SnapshotFailed":
            let problem = TidewireProblem(code: "SnapshotFailed", message: message, severity: .warning)
            return rowsFailed(mayHelp: isError, problem, &turn)
        default: break
        }
        guard isError || code != nil else { return [] }
        let problem = TidewireProblem(
            code: code ?? Self.code(ofWords: message), message: message, severity: isError ? .error : .warning)
        if isError, payload["extension"]?.text == "system" { ending = problem }
        return [.tell(.problem(problem))]
    }

    /// Returns a code for a system message that has none, as other servers send it, from its text.
    private static func code(ofWords message: String) -> String {
        if message.hasPrefix("Token has expired") { return "TokenExpired" }
        if message.hasPrefix("You do not have permissions") { return "Unauthorized" }
        if message.hasPrefix("You no longer have permission") { return "RightsLost" }
        if message.hasPrefix("Unable to subscribe") { return "NotSubscribed" }
        return "Told"
    }

    /// Handles the server's message that it has sent all missed changes.
    private mutating func caughtUp(_ at: LogPosition?, _ turn: inout Turn) -> [Action] {
        guard awaitedRows == nil else {
            let problem = TidewireProblem(
                code: "SnapshotFailed", message: "the server told no rows, and nothing of why", severity: .warning)
            return rowsFailed(mayHelp: awaitedRows?.failures == 0, problem, &turn)
                + (awaitedRows == nil ? caughtUp(at, &turn) : [])
        }
        if let at { position = at }
        if let joined = joinRef { phase = .live(ref: joined) }
        return [.tell(.caughtUp(position))]
    }

    // MARK: Rows

    /// Asks the server for all existing rows again, or the app if the server sends none.
    private mutating func mustRefetch(_ reason: RefetchReason, _ turn: inout Turn) -> [Action] {
        guard request.wantsRows, keepsPositions == true else { return [.tell(.mustRefetch(reason))] }
        // The snapshot that the channel is receiving is new enough.
        guard awaitedRows == nil else { return [] }
        awaitedRows = AwaitedRows(reason: reason)
        position = nil
        return leave(&turn) + join(&turn)
    }

    /// Handles the server's message that this user sees other rows than before. If the client asked for the existing
    /// rows, the server sends all of them again.
    private mutating func setChanged(_ turn: inout Turn) -> [Action] {
        guard request.wantsRows, keepsPositions == true else { return mustRefetch(.visibilityChanged, &turn) }
        guard awaitedRows == nil else { return [] }
        awaitedRows = AwaitedRows(reason: .visibilityChanged, joinedAt: position)
        // If the connection breaks before the last row, the client asks for all rows.
        position = nil
        return [.tell(.rowsBegin)]
    }

    /// Leaves the channel before it joins again. Without this message, the server would treat the next join on the same
    /// socket as a resume and send no rows.
    private mutating func leave(_ turn: inout Turn) -> [Action] {
        guard let joined = joinRef else { return [] }
        return [.send(message("phx_leave", [:], joined: joined, &turn))]
    }

    /// Handles the server's message that it has sent all existing rows.
    private mutating func rowsComplete(_ at: LogPosition?) -> [Action] {
        guard let rows = awaitedRows, let at = at ?? rows.joinedAt else { return [] }
        awaitedRows = nil
        position = at
        return [.tell(.rowsEnd(rows.reason, at: at))]
    }

    /// Handles a failed request for the existing rows. With `mayHelp` the channel may ask again.
    private mutating func rowsFailed(mayHelp: Bool, _ problem: TidewireProblem, _ turn: inout Turn) -> [Action] {
        guard let rows = awaitedRows else { return [] }
        awaitedRows?.failures += 1
        if mayHelp, rows.failures + 1 < Self.maximumRowsFailures {
            let left = leave(&turn)
            failures = rows.failures
            return left + retry(&turn)
        }
        awaitedRows = nil
        position = rows.joinedAt
        return [.tell(.problem(problem)), .tell(.mustRefetch(rows.reason))]
    }

    // MARK: Time

    /// Does what is due at this time: fails overdue pushes, and joins again.
    mutating func woke(_ turn: inout Turn) -> [Action] {
        var actions: [Action] = []
        for (ref, push) in pushes.sorted(by: { $0.value.number < $1.value.number }) where turn.now >= push.deadline {
            pushes[ref] = nil
            let problem = TidewireProblem(code: "NoAnswer", message: "no answer within 10 s", severity: .error)
            actions.append(.tell(.answered(push: push.number, problem)))
        }
        guard turn.isOpen else { return actions }
        switch phase {
        case .joining(let ref, let deadline) where turn.now >= deadline:
            actions.append(.send(message("phx_leave", [:], joined: ref, &turn)))
            return actions + retry(&turn)
        case .waiting(let until) where turn.now >= until:
            return actions + join(&turn)
        default: return actions
        }
    }

    var nextWake: Duration? {
        let own: Duration? =
            switch phase {
            case .joining(_, let deadline): deadline
            case .waiting(let until): until
            default: nil
            }
        return ([own].compactMap { $0 } + pushes.values.map(\.deadline)).min()
    }
}
