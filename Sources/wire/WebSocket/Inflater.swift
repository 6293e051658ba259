import Bytes
import CZlib

/// Why a compressed message was not taken.
enum InflateError: Error {
    case malformed
    case tooLarge
}

/// Decompresses messages of permessage-deflate (RFC 7692 §7.2.2), each on its own. One serves a whole thread: it takes
/// memory when the first compressed message comes, and remembers nothing between messages.
public final class Inflater {
    private var stream: ZlibStream?
    /// Whether a final block was the last thing read, so that another stream would begin behind it.
    private var isAtEnd = false
    /// What a step may write before the limit is looked at again.
    private static let stepBytes = 16 << 10
    /// What a sender leaves off a message's end (RFC 7692 §7.2.1).
    private static let tail: [UInt8] = [0, 0, 0xFF, 0xFF]

    public init() {}

    deinit {
        // SAFETY: the stream was made by `inflateInit2_`, and is not used again.
        if let stream { _ = unsafe inflateEnd(stream.pointer) }
    }

    /// Appends the message to the writer, and never more than `limit` bytes of it and one.
    func inflate(_ compressed: RawSpan, into writer: inout ByteWriter, limit: Int) throws(InflateError) {
        // An empty message is one byte (RFC 7692 §7.2.3.6), but nothing has no other meaning.
        if compressed.byteCount == 0 { return }
        let stream = prepared()
        let end = writer.count + limit
        try feed(compressed, to: stream, into: &writer, end: end)
        // A sender that ended the message with a final block may have left nothing off.
        if isAtEnd { return }
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        unsafe try feed(Self.tail.span.bytes, to: stream, into: &writer, end: end)
        // A message that ends within a block has swallowed the tail as if it were its own.
        guard isAtEnd || stream.isBetweenBlocks else { throw .malformed }
    }

    private func prepared() -> ZlibStream {
        isAtEnd = false
        if let stream {
            // SAFETY: the stream was made by `inflateInit2_`.
            let status = unsafe inflateReset(stream.pointer)
            precondition(status == Z_OK, "a stream that was made can be reset")
            return stream
        }
        let made = ZlibStream()
        // SAFETY: the stream is new, zeroed, and keeps its address.
        let status = unsafe inflateInit2_(
            made.pointer, -MAX_WBITS, ZLIB_VERSION, CInt(MemoryLayout<z_stream>.size))
        precondition(status == Z_OK, "zlib must have memory for one window a thread")
        stream = made
        return made
    }

    private func feed(
        _ input: RawSpan, to stream: ZlibStream, into writer: inout ByteWriter, end: Int
    ) throws(InflateError) {
        precondition(input.byteCount <= UInt32.max, "zlib counts a step's bytes in 32 bits")
        defer { stream.clear() }
        // SAFETY: zlib reads the borrowed input inside the closure only; afterwards its address is forgotten.
        unsafe try input.withUnsafeBytes { (bytes) throws(InflateError) in
            unsafe stream.setInput(bytes)
            while try step(stream, into: &writer, end: end) {}
        }
    }

    /// Writes what fits one step; whether there may be more.
    private func step(
        _ stream: ZlibStream, into writer: inout ByteWriter, end: Int
    ) throws(InflateError) -> Bool {
        if isAtEnd {
            guard stream.inputLeft > 0 else { return false }
            try beginAgain(stream)
        }
        // One byte more than allowed is asked for: it is what tells that there is more.
        let room = min(Self.stepBytes, end - writer.count + 1)
        var status = Z_OK
        // SAFETY: zlib writes inside the room that the writer made, and the closure says how much.
        _ = unsafe writer.append(upTo: room) { target in
            unsafe stream.setOutput(target)
            status = unsafe CZlib.inflate(stream.pointer, Z_NO_FLUSH)
            return target.count - stream.roomLeft
        }
        guard writer.count <= end else { throw .tooLarge }
        switch status {
        case Z_STREAM_END: isAtEnd = true
        case Z_OK: break
        // No progress was possible: all input is used up, and all output that it gives is written.
        case Z_BUF_ERROR: return false
        default: throw .malformed
        }
        return stream.inputLeft > 0 || stream.roomLeft == 0
    }

    /// RFC 7692 §7.2.3.4: behind a final block the message may go on.
    private func beginAgain(_ stream: ZlibStream) throws(InflateError) {
        // SAFETY: the stream was made by `inflateInit2_`; a reset keeps its input.
        guard unsafe inflateReset(stream.pointer) == Z_OK else { throw .malformed }
        isAtEnd = false
    }
}
