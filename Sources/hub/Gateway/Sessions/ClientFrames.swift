import Bytes
import Channels
import Diagnostics
import Net
import Protocol
import System
import WebSocket

/// Decoder of clients' WebSocket frames. It passes the messages in them to the channels.
final class ClientFrames: ClientPart {
    unowned let home: ClientLoop
    let deflater: Deflater?
    private let inflater = Inflater()
    private var messages: MessageDecoder?

    init(of home: ClientLoop) {
        self.home = home
        deflater = home.shared.settings.deflates ? Deflater(level: Limits.compressionLevel) : nil
    }

    func receive(_ session: Session, _ bytes: inout MutableRawSpan) -> Int {
        guard var frames = session.frames.take() else { return bytes.byteCount }
        let heldBefore = frames.unfinishedBytes
        var hasFinished = false
        var at = 0
        let shownBytes = bytes.byteCount
        reading: while true {
            let step = frames.next(in: &bytes, from: at, inflater: inflater)
            at += step.consumed
            assert(at <= shownBytes, "a frame lies within the bytes that were shown")
            switch step.event {
            case .needMore(let total):
                if total > 0 { loop.awaitBytes(total, for: session.connection) }
                break reading
            case .message(let kind, .inPlace(let range)): message(kind, bytes.bytes.extracting(range), session)
            case .message(let kind, .assembled):
                hasFinished = true
                let whole = frames.takeMessage()
                message(kind, whole.bytes, session)
            case .ping(let range): pong(bytes.bytes.extracting(range), session)
            case .pong(let range): home.receipts.ponged(bytes.bytes.extracting(range), session)
            case .close(let code, _): answerClose(code, session)
            case .violation(let violation): home.say(violation.code, "\(violation.reason)", to: session)
            }
            if case .ending = session.stage {
                at = bytes.byteCount
                break
            }
            // The loop has no time left for large messages in this turn. It reads the rest in the next turn.
            if home.largeInput.isSpent, at < bytes.byteCount, case .message = step.event {
                loop.redeliverInput(session.connection)
                break
            }
        }
        let held = frames.unfinishedBytes
        if held > 0 || heldBefore > 0 { loop.hold(held, for: session.connection, restarting: hasFinished) }
        session.frames = consume frames
        return at
    }

    private func pong(_ payload: RawSpan, _ session: Session) {
        home.output.send(to: session) { writer in FrameEncoder.appendPong(payload, to: &writer) }
    }

    private func answerClose(_ code: CloseCode?, _ session: Session) {
        let end = "the client closed the socket" + (code.map { ", code \($0.rawValue)" } ?? "")
        home.sayFarewell(to: session, end) { writer in FrameEncoder.appendCloseReply(to: code, to: &writer) }
    }

    private func message(_ kind: MessageKind, _ bytes: RawSpan, _ session: Session) {
        if case .echo = session.stage { return echo(kind, bytes, session) }
        session.metrics?.messagesReceived.add()
        session.project?.project.reference.inputBytes.add(bytes.byteCount)
        let began = LargeInput.isLarge(bytes.byteCount) ? loop.time.monotonicNanoseconds() : nil
        handle(bytes, isBinary: kind == .binary, session)
        if let began { home.largeInput.note(loop.time.monotonicNanoseconds() - began) }
    }

    private func echo(_ kind: MessageKind, _ bytes: RawSpan, _ session: Session) {
        home.output.send(to: session) { writer in
            if session.terms.wantsCompression, let deflater {
                FrameEncoder.append(kind, bytes, compressedBy: deflater, above: 0, to: &writer)
            } else {
                FrameEncoder.append(kind, bytes, to: &writer)
            }
        }
    }

    // MARK: Messages

    func handle(_ bytes: RawSpan, isBinary: Bool, _ session: Session) {
        // A message borrows from its decoder. Handling it may decode another frame that was waiting, which needs a
        // second decoder.
        var decoder =
            messages.take()
            ?? MessageDecoder(maximumTopicBytes: Limits.maximumTopicBytes, maximumRefBytes: Limits.maximumRefBytes)
        do throws(MessageError) {
            if isBinary {
                handle(try decoder.decodeBinary(bytes, session.terms.version), bytes, isBinary, session)
            } else {
                handle(try decoder.decodeText(bytes, session.terms.version), bytes, isBinary, session)
            }
        } catch {
            // Supabase Realtime drops the message and keeps the socket. So does the hub, and counts the message.
            session.metrics?.messagesMalformed.add()
            Log.shared.debug("MalformedWebSocketMessage: dropped a message that cannot be parsed")
        }
        messages = consume decoder
    }

    /// Decodes a frame that waited for its channel's join, and passes the message to `body`. If the frame is
    /// unreadable, only counts it.
    func read(_ frame: WaitingFrame, _ session: Session, _ body: (borrowing ClientMessage) -> Void) {
        var decoder = MessageDecoder(
            maximumTopicBytes: Limits.maximumTopicBytes, maximumRefBytes: Limits.maximumRefBytes)
        let bytes = frame.bytes.rawBytes
        do throws(MessageError) {
            if frame.isBinary {
                body(try decoder.decodeBinary(bytes, session.terms.version))
            } else {
                body(try decoder.decodeText(bytes, session.terms.version))
            }
        } catch {
            session.metrics?.messagesMalformed.add()
        }
    }

    private func handle(_ message: borrowing ClientMessage, _ whole: RawSpan, _ isBinary: Bool, _ session: Session) {
        session.refs.note(message.ref)
        let token = message.event == .accessToken ? AccessToken(message.payload) : nil
        let request: ChannelRequest =
            switch message.event {
            case .join: .join
            case .leave: .leave
            case .heartbeat: .heartbeat
            case .accessToken:
                switch token {
                case .text: .token
                case .null: .noToken
                case .other, nil: .push
                }
            case .broadcast, .presence, .other: .push
            }
        // In the usual case the topic is joined, and the channel machine has nothing to do.
        if request == .push, let id = session.machine?.joined(message.topic) {
            session.project?.push(id, message, whole, isBinary: isBinary, session)
            return
        }
        let text: [UInt8] = if case .text(let text)? = token { text } else { [] }
        var actions: [ChannelAction] = []
        session.machine?.handle(
            ChannelFrame(
                request, topic: message.topic, joinRef: message.joinRef, ref: message.ref,
                token: text.rawBytes, whole: whole, isBinary: isBinary), into: &actions)
        for action in actions {
            switch action {
            case .startJoin(let id): session.project?.joins.startJoin(id, message.payload, session)
            case .startRefresh(let id, let number): session.project?.tokens.refresh(id, number, text, session)
            case .push(let id): session.project?.push(id, message, whole, isBinary: isBinary, session)
            default: home.perform(action, for: session)
            }
        }
    }
}
