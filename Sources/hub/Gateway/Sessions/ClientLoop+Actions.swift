import Auth
import Bytes
import Channels
import Diagnostics
import Net
import Protocol
import WebSocket

/// Execution of the channel machine's actions: messages to clients, and calls of the project.
extension ClientLoop {
    func perform(_ actions: [ChannelAction], for session: Session) {
        for action in actions { perform(action, for: session) }
    }

    /// Performs an action that does not need the message that caused it. `ClientFrames` performs the others.
    func perform(_ action: ChannelAction, for session: Session) {
        if let feed = session.feed { return feeds.perform(action, feed, session) }
        switch action {
        case .heartbeat(let ref):
            output.sendMessage(to: session) { encoder, writer in encoder.appendHeartbeatReply(ref: ref, to: &writer) }
        case .replyOK(let address):
            session.metrics?.channelEvents[.left].add()
            output.sendMessage(to: session) { encoder, writer in encoder.appendReply(.ok, address, to: &writer) }
        case .replyUnmatched(let address):
            output.sendMessage(to: session) { encoder, writer in
                encoder.appendErrorReply("unmatched topic", address, to: &writer)
            }
        case .refuseJoin(let address, let reason):
            output.sendMessage(to: session) { encoder, writer in encoder.appendErrorReply(reason, address, to: &writer)
            }
        case .refuseSurplusJoin(let address):
            refusals.refuseLater(address, "ChannelRateLimitReached: Too many channels", session)
        case .stop(let id, let reason): session.project?.stop(id, session, reason)
        case .close(let address):
            session.metrics?.channelEvents[.closed].add()
            output.sendMessage(to: session) { encoder, writer in encoder.appendClose(address, to: &writer) }
        case .fail(let address):
            output.sendMessage(to: session) { encoder, writer in encoder.appendChannelError(address, to: &writer) }
        case .systemError(let address, let ending):
            let notice = ChannelNotice(.error, ending.text, TextCode(rawValue: ending.code), from: .system)
            output.sendMessage(to: session) { encoder, writer in
                encoder.appendSystem(notice, topic: address.topic, address.joinRef, to: &writer)
            }
        case .resume(let frame):
            // An earlier frame may have ended the session.
            guard case .client = session.stage else { return }
            frames.handle(frame.bytes.rawBytes, isBinary: frame.isBinary, session)
        case .tooManyWaiting: say(.policyViolation, "too many messages before a channel was joined", to: session)
        case .startJoin, .startRefresh, .push: preconditionFailure("only a frame at hand starts this")
        }
    }
}

/// Encoder calls for addresses and texts that are arrays.
extension MessageEncoder {
    func appendHeartbeatReply(ref: [UInt8], to writer: inout ByteWriter) {
        appendHeartbeatReply(ref: ref.rawBytes, to: &writer)
    }

    func appendReply(_ status: ReplyStatus, _ address: ChannelAddress, to writer: inout ByteWriter) {
        appendReply(
            status, topic: address.topic.rawBytes, joinRef: address.joinRef.rawBytes,
            ref: address.ref.rawBytes, to: &writer)
    }

    func appendErrorReply(_ reason: String, _ address: ChannelAddress, to writer: inout ByteWriter) {
        appendErrorReply(
            reason: reason, topic: address.topic.rawBytes, joinRef: address.joinRef.rawBytes,
            ref: address.ref.rawBytes, to: &writer)
    }

    func appendJoinReply(
        _ bindings: [ChangeBinding], _ standing: LogStanding?, _ address: ChannelAddress, to writer: inout ByteWriter
    ) {
        appendJoinReply(
            bindings, standing, topic: address.topic.rawBytes, joinRef: address.joinRef.rawBytes,
            ref: address.ref.rawBytes, to: &writer)
    }

    func appendClose(_ address: ChannelAddress, to writer: inout ByteWriter) {
        appendClose(
            topic: address.topic.rawBytes, joinRef: address.joinRef.rawBytes, to: &writer)
    }

    func appendDisconnectRequest(topic: [UInt8], _ joinRef: [UInt8], to writer: inout ByteWriter) {
        appendDisconnectRequest(topic: topic.rawBytes, joinRef: joinRef.rawBytes, to: &writer)
    }

    func appendChannelError(_ address: ChannelAddress, to writer: inout ByteWriter) {
        appendChannelError(
            topic: address.topic.rawBytes, joinRef: address.joinRef.rawBytes, to: &writer)
    }

    func appendSystem(_ notice: ChannelNotice, topic: [UInt8], _ joinRef: [UInt8], to writer: inout ByteWriter) {
        let message = Array(notice.text.utf8)
        let bytes = topic.rawBytes
        appendSystem(
            notice.status, notice.source, message: message.rawBytes, code: notice.code, position: notice.position,
            rows: notice.rows, sets: notice.sets, channel: bytes.extracting(droppingFirst: 9), topic: bytes,
            joinRef: joinRef.rawBytes,
            to: &writer)
    }
}

/// System message about a channel.
struct ChannelNotice {
    let status: ReplyStatus
    let text: String
    let code: TextCode?
    var source: SystemExtension
    /// Position in the log that the message is about; nil if there is none.
    var position: String?
    /// Number of rows, for messages about a snapshot.
    var rows: Int?
    /// Sets of rows that the message is about.
    var sets: [ChangedSet] = []

    init(
        _ status: ReplyStatus, _ text: String, _ code: TextCode? = nil, from source: SystemExtension = .postgresChanges
    ) {
        self.status = status
        self.text = text
        self.code = code
        self.source = source
    }

    init(_ status: ReplyStatus, _ message: ClientText, from source: SystemExtension = .postgresChanges) {
        self.init(status, message.text, message.code, from: source)
    }
}

extension ClientText {
    var ending: ChannelEnding { ChannelEnding(code: code.rawValue, text: text) }
}

extension TokenError {
    /// Reason for ending a channel whose token is no longer valid.
    var clientText: ClientText {
        let code: TextCode =
            switch self {
            case .expired: .tokenExpired
            case .blocked: .blocked
            default: .tokenRefused
            }
        return ClientText(code, systemMessage)
    }

    /// Metric label under which the refusal is counted and logged; nil for a token in which nothing is wrong.
    var refusal: ProjectMetrics.TokenRefusal? {
        switch self {
        case .malformed: .malformed
        case .noKey: .unknownKey
        case .signature: .badSignature
        case .expired: .expired
        case .early: .notYetValid
        case .roleRefused: .wrongRole
        case .claimRefused: .wrongClaim
        case .claimsMissing: .claimsMissing
        case .blocked: nil
        }
    }
}
