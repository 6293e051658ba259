import Auth
import Bytes
import Change
import Channels
import Diagnostics
import Net
import Protocol
import Settings
import System
import WebSocket

/// Broadcasts that arrive as HTTP requests.
final class ClientPosts: ClientPart {
    unowned let home: ClientLoop

    init(of home: ClientLoop) { self.home = home }

    /// Returns a refusal that does not depend on the body; nil if the hub must read the body.
    func refusal(_ incoming: IncomingRequest, _ session: Session) -> HTTPResponse? {
        guard AcceptHeader(incoming.request.header("accept")).allowsJSON else { return .notAcceptable }
        let project: ProjectLoop
        do throws(NotServed) {
            project = try home.served(incoming.request)
        } catch {
            return error.response
        }
        incoming.add(project.project.rates.headers(at: loop.now))
        if project.limits.isSuspended {
            project.project.refused(.suspended, at: loop.now)
            return HTTPResponse(.suspended)
        }
        if project.project.rates.events.isExhausted(at: loop.now) { return HTTPResponse(.tooManyRequests) }
        return claims(of: incoming.request, project, session) == nil ? HTTPResponse(.unauthorized) : nil
    }

    private func claims(of request: HTTPRequest, _ project: ProjectLoop, _ session: Session) -> Claims? {
        guard let token = request.bearerToken else {
            project.project.refused(.missing, at: loop.now)
            return nil
        }
        do throws(TokenError) {
            return try project.tokens.verify(Array(token.utf8))
        } catch {
            project.ledger.noteRefusal(
                of: session, project.tokens.holder(ofRefused: token), LedgerNote.topicOfPosts,
                "401: \(error.upgradeText)")
            return nil
        }
    }

    func post(_ incoming: IncomingRequest, _ session: Session) {
        let request = incoming.request
        guard request.method == "POST" else {
            metrics.refusals[.notFound].add()
            return home.requests.answer(session, .json(.notFound, Array(#""Not Found""#.utf8)))
        }
        // The hub has not checked a request without a body yet.
        if incoming.body.isEmpty, let refusal = refusal(incoming, session) {
            return home.requests.answer(session, refusal)
        }
        let project: ProjectLoop
        do throws(NotServed) {
            project = try home.served(request)
        } catch {
            // The project ended while the body arrived.
            return home.requests.answer(session, error.response)
        }
        guard let claims = claims(of: request, project, session) else {
            return home.requests.answer(session, HTTPResponse(.unauthorized))
        }
        let post = Post(
            project, claims, headers: request.headersForPolicies { _ in true }, answering: session.connection)
        if case .broadcastOne(let topic, let event) = incoming.route {
            postOne(post, topic, event, incoming, session)
        } else {
            postAll(post, incoming, session)
        }
    }

    // MARK: One

    private func postOne(
        _ post: Post, _ topic: String, _ event: String, _ incoming: IncomingRequest, _ session: Session
    ) {
        let request = incoming.request
        let bytes = incoming.body
        let body = bytes.rawBytes
        let kind = SingleBroadcast(contentType: request.header("content-type"), body: body)
        switch kind {
        case .unsupportedMediaType: return home.requests.answer(session, HTTPResponse(.unsupportedMediaType))
        case .malformed:
            return home.requests.answer(session, .json(.badRequest, Array(#"{"message":"Bad Request"}"#.utf8)))
        case .object, .wrapped, .empty, .binary: break
        }
        var payload = ByteWriter(capacity: body.byteCount + 16)
        kind.appendPayload(of: body, to: &payload)
        guard payload.count <= post.project.limits.maximumPayloadBytes else {
            return home.requests.answer(session, HTTPResponse(.tooLarge))
        }
        post.messages = [
            Post.Message(
                form: kind == .binary ? .binary : .json, topic: Array(topic.utf8), event: Array(event.utf8), id: [],
                payload: 0..<payload.count, isPrivate: request.query("private") == "true")
        ]
        post.payloads = payload.copied()
        post.mustBeAllowed = true
        send(post, session)
    }

    // MARK: Several

    private func postAll(_ post: Post, _ incoming: IncomingRequest, _ session: Session) {
        let limits = post.project.limits
        // Supabase Realtime treats a body of another media type as an empty object.
        let body = MediaType.isJSON(incoming.request.header("content-type")) ? incoming.body : Array("{}".utf8)
        do throws(BatchError) {
            let batch = try BroadcastBatch(
                body.rawBytes, maximumMessages: Limits.maximumPostedMessages,
                maximumPayloadBytes: limits.maximumPayloadBytes)
            post.messages = batch.messages.map {
                Post.Message(
                    form: .batch, topic: $0.topic, event: $0.event, id: $0.id, payload: $0.payload,
                    isPrivate: $0.isPrivate)
            }
        } catch {
            switch error {
            case .malformed:
                return home.requests.answer(session, .json(.badRequest, Array(#"{"message":"Bad Request"}"#.utf8)))
            case .tooMany: return home.requests.answer(session, HTTPResponse(.batchTooLarge))
            case .invalid(let body): return home.requests.answer(session, .json(.unprocessableContent, body))
            }
        }
        guard post.project.project.rates.events.fits(post.messages.count, at: loop.now) else {
            return home.requests.answer(session, HTTPResponse(.batchTooLarge))
        }
        post.payloads = incoming.body
        send(post, session)
    }

    /// Sends the messages. Public messages need no permission. For private messages the hub first asks PostgreSQL for
    /// the sender's rights, once for each topic.
    private func send(_ post: Post, _ session: Session) {
        assert(
            post.messages.allSatisfy { $0.payload.upperBound <= post.payloads.count }, "a payload lies in its own post")
        if post.topicsToAsk.isEmpty {
            home.requests.answer(session, post.project.finish(post))
        } else {
            home.requests.awaitAnswer(session)
            post.project.askWriteRights(post)
        }
    }
}

extension HTTPRequest {
    /// Token from `Authorization: Bearer` in any letter case, or else from the header `apikey`, which some clients send
    /// alone.
    var bearerToken: String? {
        if let header = header("authorization") {
            let parts = header.split(separator: " ", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2, parts[0].lowercased() == "bearer", !parts[1].allSatisfy(\.isWhitespace) {
                return String(parts[1])
            }
            guard parts.allSatisfy({ $0.isEmpty || $0.lowercased() == "bearer" }) else { return nil }
        }
        return self.header("apikey")
    }
}
