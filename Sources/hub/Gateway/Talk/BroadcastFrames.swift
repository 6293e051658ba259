import Bytes
import Channels
import Diagnostics
import Net
import Protocol
import WebSocket

/// Writer of broadcast frames. It writes a message at most once for each kind of receiver, and the loop shares the
/// frame between all receivers of that kind.
struct BroadcastFrames: ~Copyable {
    private let deflater: Deflater?
    private var message = ByteWriter(capacity: 4096)
    private var frame = ByteWriter(capacity: 4096)

    init(_ deflater: Deflater?) { self.deflater = deflater }

    /// Frames of one message by the index of their form (`TopicListener.form`); nil for forms that are not written or
    /// do not exist.
    private struct Frames {
        private var pieces: (Piece?, Piece?, Piece?, Piece?) = (nil, nil, nil, nil)
        /// Bit set of the form indices whose frame was written, or found not to exist.
        private var known: UInt8 = 0

        func has(_ form: Int) -> Bool {
            assert((0..<TopicListener.forms).contains(form), "each form has a place of its own")
            return known & (1 << UInt8(form)) != 0
        }

        subscript(form: Int) -> Piece? {
            get {
                switch form {
                case 0: pieces.0
                case 1: pieces.1
                case 2: pieces.2
                default: pieces.3
                }
            }
            set {
                known |= 1 << UInt8(form)
                switch form {
                case 0: pieces.0 = newValue
                case 1: pieces.1 = newValue
                case 2: pieces.2 = newValue
                default: pieces.3 = newValue
                }
            }
        }
    }

    /// Sends a message to all members that may receive it, except to the speaker. Returns the number of receivers. A
    /// database message is not sent to members with `hasReplayed`, which may already have it.
    mutating func deliver(
        _ broadcast: borrowing Broadcast, to members: [TopicMember<TopicListener>], of topic: RawSpan,
        except speaker: UInt32?, isOfDatabase: Bool, on loop: SocketLoop
    ) -> Int {
        var frames = Frames()
        var count = 0
        for index in members.indices {
            let hearer = members[index].member
            guard hearer.hearsBroadcasts, hearer.channel != speaker, !hearer.hasReplayed || !isOfDatabase else {
                continue
            }
            let form = hearer.form
            if !frames.has(form) { frames[form] = write(broadcast, topic, form, on: loop) }
            guard let piece = frames[form] else { continue }
            loop.send(piece, to: hearer.connection)
            count += 1
        }
        shrink()
        return count
    }

    /// Sends a message to one channel. Returns false if the channel's protocol version has no form for the message.
    mutating func deliver(
        _ broadcast: borrowing Broadcast, to hearer: TopicListener, of topic: RawSpan, joinRef: RawSpan,
        on loop: SocketLoop
    ) -> Bool {
        defer { shrink() }
        guard let piece = write(broadcast, topic, hearer.form, joinRef: joinRef, on: loop) else { return false }
        loop.send(piece, to: hearer.connection)
        return true
    }

    /// Sends a difference between two states of a topic's presence to all members that may see presence. Returns the
    /// number of receivers.
    mutating func deliver(
        difference: RawSpan, to members: [TopicMember<TopicListener>], of topic: RawSpan, on loop: SocketLoop
    ) -> Int {
        var frames = Frames()
        var count = 0
        for index in members.indices {
            let hearer = members[index].member
            guard hearer.hearsPresence else { continue }
            let form = hearer.form
            if !frames.has(form) {
                message.removeAll()
                MessageEncoder(TopicListener.version(of: form)).appendPresenceDiff(
                    difference, topic: topic, to: &message)
                frames[form] = Self.share(.text, message, form, deflater, &frame, on: loop)
            }
            guard let piece = frames[form] else { continue }
            loop.send(piece, to: hearer.connection)
            count += 1
        }
        shrink()
        return count
    }

    private mutating func write(
        _ broadcast: borrowing Broadcast, _ topic: RawSpan, _ form: Int, joinRef: RawSpan = RawSpan(),
        on loop: SocketLoop
    ) -> Piece? {
        message.removeAll()
        let encoder = MessageEncoder(TopicListener.version(of: form))
        guard deflater == nil || !TopicListener.isCompressed(form) else {
            let kind = encoder.appendBroadcast(broadcast, topic: topic, joinRef: joinRef, to: &message)
            return Self.kind(kind).map { Self.share($0, message, form, deflater, &frame, on: loop) }
        }
        let shape = encoder.appendHead(of: broadcast, topic: topic, joinRef: joinRef, to: &message)
        guard let kind = Self.kind(shape) else { return nil }
        let headBytes = message.count
        encoder.appendTail(of: broadcast, shape, to: &message)
        return Self.share(kind, message, around: broadcast.payload, at: headBytes, &frame, on: loop)
    }

    /// Builds a frame around a payload, which is copied only once: from the received bytes to the shared frame.
    private static func share(
        _ kind: MessageKind, _ message: borrowing ByteWriter, around payload: RawSpan, at offset: Int,
        _ frame: inout ByteWriter, on loop: SocketLoop
    ) -> Piece {
        frame.removeAll()
        FrameEncoder.appendHeader(kind, payloadBytes: message.count + payload.byteCount, to: &frame)
        frame.append(message.bytes.extracting(0..<offset))
        return loop.share(frame.bytes, payload, message.bytes.extracting(offset..<message.count))
    }

    private static func kind(_ frame: BroadcastFrame) -> MessageKind? {
        switch frame {
        case .text: .text
        case .binary: .binary
        case .none: nil
        }
    }

    private static func share(
        _ kind: MessageKind, _ message: borrowing ByteWriter, _ form: Int, _ deflater: Deflater?,
        _ frame: inout ByteWriter,
        on loop: SocketLoop
    ) -> Piece {
        frame.removeAll()
        if TopicListener.isCompressed(form), let deflater {
            FrameEncoder.append(
                kind, message.bytes, compressedBy: deflater, above: Limits.compressionThresholdBytes, to: &frame)
        } else {
            FrameEncoder.append(kind, message.bytes, to: &frame)
        }
        return loop.share(frame.bytes)
    }

    private mutating func shrink() {
        message.shrink(to: Limits.keptWriterBytes)
        frame.shrink(to: Limits.keptWriterBytes)
    }
}
