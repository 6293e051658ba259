import Auth
import Authorizing
import Bytes
import Channels
import Diagnostics
import Net
import Protocol
import WebSocket

/// Messages from HTTP requests to a project's topics.
extension ProjectLoop {
    func askWriteRights(_ post: Post) {
        let topics = post.topicsToAsk
        post.asks(topics.count)
        for topic in topics {
            let question = ChannelQuestion(
                topic: topic, role: post.claims.role.text, subject: post.claims.subject.text,
                claims: post.claims.json.text, headers: post.headers, probe: .write)
            rights.ask(question, for: post, topic: topic)
        }
    }

    func authorized(_ post: Post, _ topic: [UInt8], _ answer: ChannelAnswer) {
        guard post.take(answer, of: topic) else { return }
        clients.requests.answerLater(post.connection, finish(post))
    }

    /// Sends the post's messages that its sender may send, and returns the response to the HTTP request.
    func finish(_ post: Post) -> HTTPResponse {
        if post.mustBeAllowed, let failure = post.failure {
            let (status, message) = failure.restAnswer
            return .message(HTTPStatus(rawValue: UInt16(clamping: status)), message)
        }
        for message in post.messages {
            guard !message.isPrivate || post.allowed.contains(message.topic) else {
                metrics.drops[.denied].add()
                if post.mustBeAllowed { return HTTPResponse(.forbidden as BroadcastAnswer) }
                continue
            }
            project.rates.events.take(at: loop.now)
            say(message, of: post)
        }
        return HTTPResponse(.accepted)
    }

    private func say(_ message: Post.Message, of post: Post) {
        let payloads = post.payloads
        let payload = payloads.rawBytes.extracting(message.payload)
        let broadcast = Broadcast(
            message.form, event: message.event.rawBytes, payload: payload, id: message.id.rawBytes)
        talk.say(broadcast, message.topic.rawBytes, isPrivate: message.isPrivate, except: nil)
    }
}

extension ProjectRates {
    /// Returns the headers that tell REST clients the project's rate.
    func headers(at nanoseconds: UInt64) -> [HTTPHeader] {
        let level = events.level(at: nanoseconds)
        return [
            HTTPHeader("x-rate-rolling", String(level.rolling)), HTTPHeader("x-rate-limit", String(level.limit)),
            HTTPHeader("x-rate-limit-remaining", String(level.remaining)),
        ]
    }
}
