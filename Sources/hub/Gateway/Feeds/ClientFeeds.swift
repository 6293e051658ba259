import Auth
import Bytes
import Channels
import Delivery
import Diagnostics
import Net
import Protocol
import Settings
import WebSocket

/// Feeds (`GET /api/changes`): changes as the answer to an HTTP request, in pages or in streams that continue.
final class ClientFeeds: ClientPart {
    unowned let home: ClientLoop

    init(of home: ClientLoop) { self.home = home }

    func serveChanges(_ incoming: IncomingRequest, _ session: Session) {
        let request = incoming.request
        guard request.method == "GET" || request.isHead else {
            var response = HTTPResponse.error(.methodNotAllowed, "only GET is answered here")
            response.headers.append(HTTPHeader("allow", "GET, HEAD, OPTIONS"))
            return home.requests.answer(session, response)
        }
        var asked: ProjectLoop?
        do throws(FeedRefusal) {
            let project = try admit(request)
            asked = project
            session.terms.claims = try claims(of: request, project, session)
            let feed = try FeedRequest(request)
            try checkRoom(project)
            if request.isHead { return answerHead(session, feed.form) }
            session.project = project
            session.terms.headers = request.headersForPolicies { $0.hasPrefix("x-") && $0 != "x-api-key" }
            session.machine = ChannelMachine(project.limits.channelLimits, closesReplaced: false)
            do throws(FeedRefusal) {
                try project.feeds.begin(feed, session)
            } catch {
                refuse(session, error)
            }
        } catch {
            metrics.refusals[error.refusal].add()
            if let claims = session.terms.claims {
                asked?.ledger.noteRefusal(of: session, TokenHolder(claims), Feed.ledgerTopic, error.said)
            }
            home.requests.answer(session, error.response)
        }
    }

    private func admit(_ request: HTTPRequest) throws(FeedRefusal) -> ProjectLoop {
        let project: ProjectLoop
        do throws(NotServed) {
            project = try home.served(request)
        } catch {
            switch error {
            case .unavailable(let sentence): throw .unavailable(sentence.prefix(1).uppercased() + sentence.dropFirst())
            case .unknown: throw .unknownProject
            }
        }
        if home.farewells.haveBegun || project.live.pipeline.hasFailed {
            throw .unavailable("The server restarts, or its event log cannot be read")
        }
        if project.limits.isSuspended {
            project.project.refused(.suspended, at: loop.now)
            throw .suspended
        }
        if project.limits.isPrivateOnly { throw .privateOnly }
        return project
    }

    private func claims(
        of request: HTTPRequest, _ project: ProjectLoop, _ session: Session
    ) throws(FeedRefusal) -> Claims {
        // A browser's EventSource cannot set headers, so the query may contain the token. A user's token takes
        // precedence over an application's key.
        let ofUser = request.header("authorization") == nil ? request.query("access_token") : nil
        guard let token = ofUser ?? request.bearerToken ?? request.header("x-api-key") ?? request.query("apikey") else {
            project.project.refused(.missing, at: loop.now)
            throw .noToken
        }
        do throws(TokenError) {
            return try project.tokens.verify(Array(token.utf8))
        } catch {
            let refusal = FeedRefusal.token(error)
            project.ledger.noteRefusal(
                of: session, project.tokens.holder(ofRefused: token), Feed.ledgerTopic, refusal.said)
            throw refusal
        }
    }

    /// Checks the project's limits before the feed begins, so that HEAD requests are refused, too.
    private func checkRoom(_ project: ProjectLoop) throws(FeedRefusal) {
        guard project.project.users.hasRoom else {
            project.project.refused(.tooManyUsers, at: loop.now)
            throw .tooMany("Too many connected users")
        }
        guard !project.project.rates.joins.isExhausted(at: loop.now) else {
            project.project.refused(.tooManyJoins, at: loop.now)
            throw .tooMany("Too many joins per second")
        }
    }

    private func answerHead(_ session: Session, _ form: FeedForm) {
        let keepAlive = sendHead(session, form)
        session.request.incoming = nil
        goOn(session, keepAlive: keepAlive)
    }

    // MARK: Actions of the feed's channel

    func perform(_ action: ChannelAction, _ feed: Feed, _ session: Session) {
        switch action {
        case .stop(let id, let reason):
            if let project = session.project, let channel = project.feeds.channel(of: feed, session) {
                feed.stood = project.feeds.standing(of: channel)
            }
            session.project?.stop(id, session, reason)
        case .systemError(_, let ending):
            cut(feed, session, FeedEnding.Reason(code: ending.code, ending.text))
        case .refuseJoin(_, let reason): refuse(session, .unavailable(reason))
        case .fail: cut(feed, session, FeedEnding.Reason(code: "Failed", "the feed failed: ask again"))
        // The end of the answer tells the client that the channel closed.
        case .close: break
        case .heartbeat, .replyOK, .replyUnmatched, .refuseSurplusJoin, .resume, .tooManyWaiting,
            .startJoin, .startRefresh, .push:
            preconditionFailure("only what a client says starts this")
        }
    }

    /// Begins the answer. Returns false if the hub refuses the request, because it cannot serve the bindings or the
    /// position.
    func begin(_ feed: Feed, _ channel: Channel) -> Bool {
        let session = channel.session
        guard let project = session.project else { return false }
        if let refusal = project.feeds.refusal(of: channel) {
            refuse(session, refusal)
            return false
        }
        guard let standing = project.feeds.standing(of: channel) else {
            refuse(session, .unavailable("The event log has not begun: try again later"))
            return false
        }
        let isFirst = if case .joining = feed.stage { true } else { false }
        assert(isFirst, "an answer begins once")
        project.metrics.feedEvents[.begun].add()
        session.use.hasJoined = true
        feed.stage = .telling
        _ = sendHead(session, feed.form)
        write(to: session, feed) { encoder, writer in encoder.appendStart(at: standing.position, to: &writer) }
        if !feed.isPage {
            for note in feed.notes { write(note, to: session, feed) }
            feed.notes = []
        }
        watch(feed, session)
        return true
    }

    /// Sends the head of the answer. Returns true if the connection stays open after the answer.
    private func sendHead(_ session: Session, _ form: FeedForm) -> Bool {
        assert(session.request.incoming != nil, "a head answers the request at hand")
        let keepAlive = stays(session, form)
        var head = HTTPResponse(.ok, contentType: form.format.contentType, body: [])
        // Proxies must neither cache nor buffer the answer.
        head.headers += [HTTPHeader("cache-control", "no-store"), HTTPHeader("x-accel-buffering", "no")]
        if let incoming = session.request.incoming { head.headers += incoming.headers }
        home.output.send(to: session) { writer in
            head.appendStreamHead(to: &writer, keepAlive: keepAlive, inChunks: form.framing == .chunks)
        }
        return keepAlive
    }

    private func stays(_ session: Session, _ form: FeedForm) -> Bool {
        form.framing == .chunks && session.request.incoming?.request.keepAlive == true && !home.farewells.haveBegun
    }

    /// Sends one piece of the answer.
    func write(to session: Session, _ feed: Feed, _ write: (FeedEncoder, inout ByteWriter) -> Void) {
        home.output.send(to: session) { writer in
            write(FeedEncoder(feed.form.format), &writer)
        } in: { piece, frame in
            feed.form.appendPiece(piece, to: &frame)
        }
    }

    func write(_ record: SystemRecord, to session: Session, _ feed: Feed) {
        write(to: session, feed) { encoder, writer in encoder.appendSystem(record, to: &writer) }
    }

    /// Sends one existing row of a snapshot.
    func send(_ row: RawSpan, in envelope: ChangeEnvelope, to channel: Channel) {
        switch channel.recipient {
        case .client:
            home.output.sendMessage(to: channel.session) { _, writer in
                writer.append(envelope.prefix)
                writer.append(row)
                envelope.appendEnd(to: &writer)
            }
        case .feed(let feed):
            write(to: channel.session, feed) { _, writer in
                writer.append(envelope.prefix)
                FeedForm.appendOneLine(row, to: &writer)
                envelope.appendEnd(to: &writer)
            }
        }
    }

    // MARK: During the answer

    private func watch(_ feed: Feed, _ session: Session) {
        if let timer = session.timer { loop.cancel(timer) }
        let time =
            switch (feed.isPage, feed.request.isLive) {
            case (true, true): Limits.feedPollTime
            case (true, false): Limits.feedPageTime
            case (false, _): Limits.feedHeartbeat
            }
        session.timer = loop.after(
            nanoseconds: time.wholeNanoseconds, token: TimerToken.request(session.connection).rawValue)
    }

    /// Handles the feed's timer. A page ends with the changes that it has. A stream sends its position, which shows
    /// that it is alive.
    func feedIsDue(_ feed: Feed, _ session: Session) {
        guard case .telling = feed.stage, !feed.isPage else { return finish(feed, session) }
        watch(feed, session)
        guard !session.isSlow, let project = session.project, let channel = project.feeds.channel(of: feed, session),
            let standing = project.feeds.standing(of: channel)
        else { return }
        write(to: session, feed) { encoder, writer in encoder.appendPosition(standing.position, to: &writer) }
    }

    // MARK: End of the answer

    func finish(_ feed: Feed, _ session: Session) {
        guard let project = session.project, let channel = project.feeds.channel(of: feed, session),
            let ending = project.feeds.ending(of: feed, channel)
        else { return cut(feed, session, FeedEnding.Reason(code: "Failed", "the feed failed: ask again")) }
        end(feed, session, ending)
    }

    /// Ends the feed early, for example when its token expires or the hub stops.
    func cut(_ feed: Feed, _ session: Session, _ reason: FeedEnding.Reason) {
        if case .joining = feed.stage { return refuse(session, .unavailable(reason.text)) }
        let channel = session.project?.feeds.channel(of: feed, session)
        if let channel { session.project?.reports.sendWaitingReports(channel) }
        guard let standing = channel.flatMap({ session.project?.feeds.standing(of: $0) }) ?? feed.stood else {
            return abandon(session)
        }
        end(feed, session, FeedEnding(at: standing.position, hasMore: true, because: reason))
    }

    private func end(_ feed: Feed, _ session: Session, _ ending: FeedEnding) {
        assert(!feed.isAnswered, "an answer ends once")
        if let reason = ending.reason {
            session.metrics?.feedEvents[.cut].add()
            if feed.isPage {
                feed.notes.append(SystemRecord(.error, code: reason.code, reason.text, at: ending.position))
            }
        }
        write(to: session, feed) { encoder, writer in encoder.appendEnd(ending, feed.notes, to: &writer) }
        home.output.send(to: session) { writer in feed.form.appendEnd(to: &writer) }
        feed.isAnswered = true
        let keepAlive = stays(session, feed.form)
        let next = release(session)
        next.request.incoming = nil
        goOn(next, keepAlive: keepAlive)
    }

    /// Closes a feed without an ending. The client sees an incomplete answer, and continues from its last position.
    func abandon(_ session: Session) {
        session.metrics?.feedEvents[.cut].add()
        let next = release(session)
        next.stage = .ending
        loop.close(next.connection, afterFlushing: .zero)
    }

    func refuse(_ session: Session, _ refusal: FeedRefusal) {
        if let claims = session.terms.claims {
            session.project?.ledger.noteRefusal(of: session, TokenHolder(claims), Feed.ledgerTopic, refusal.said)
        }
        if case .mustFetchAgain = refusal {
            session.metrics?.feedEvents[.behind].add()
        } else {
            session.metrics?.feedEvents[.refused].add()
        }
        let next = release(session)
        home.requests.answer(next, refusal.response)
        if case .request = next.stage { loop.redeliverInput(next.connection) }
    }

    private func goOn(_ session: Session, keepAlive: Bool) {
        guard keepAlive else {
            session.stage = .ending
            return loop.close(session.connection, afterFlushing: Limits.farewellLimit)
        }
        session.stage = .request(scanned: 0)
        home.requests.waitForRequest(session)
        loop.redeliverInput(session.connection)
    }

    /// Returns a new session for the connection, in the state before the feed began. The old session is released.
    private func release(_ session: Session) -> Session {
        forget(session)
        let next = Session(session.connection, from: session.peer)
        next.request.incoming = session.request.incoming
        session.request.incoming = nil
        session.stage = .ending
        home.replace(session, with: next)
        return next
    }

    /// Releases the request's channel. The session no longer counts among the project's users.
    func forget(_ session: Session) {
        if let timer = session.timer { loop.cancel(timer) }
        session.timer = nil
        home.leaveAll(session, "its answer has ended")
        assert(
            session.channels.isEmpty && session.use.filterParts == 0, "a request that ended leaves no channel behind")
        session.machine = nil
        session.project?.project.users.hasEnded(session)
    }
}

extension FeedRefusal {
    fileprivate var refusal: ProcessMetrics.Refusal {
        switch self {
        case .token, .noToken: .token
        case .tooMany: .limit
        case .unknownProject: .notFound
        case .suspended, .privateOnly: .suspended
        case .unavailable: .draining
        case .unknownParameter, .parameter, .notAcceptable, .binding, .mustFetchAgain: .badRequest
        }
    }
}

extension CloseCode {
    /// Code that tells a feed's client the reason for which a WebSocket would be closed.
    var feedCode: StaticString {
        switch self {
        case .serviceRestart: "Restarting"
        case .tryAgainLater: "TryAgainLater"
        case .internalError: "LogUnreadable"
        default: "Closed"
        }
    }
}
