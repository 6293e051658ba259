import Bytes
import CZlib

/// Compression of whole bodies for the content coding `gzip` (RFC 1952).
public enum Gzip {
    /// Returns the bytes, compressed as far as zlib can.
    public static func compress(_ bytes: RawSpan) -> [UInt8] {
        precondition(bytes.byteCount <= Int32.max / 2, "zlib counts bytes in 32 bits")
        let stream = ZlibStream()
        // SAFETY: the stream is new, zeroed, and keeps its address until `deflateEnd`. 16 more bits of the window ask for
        // a gzip header.
        let status = unsafe deflateInit2_(
            stream.pointer, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY, ZLIB_VERSION,
            CInt(MemoryLayout<z_stream>.size))
        precondition(status == Z_OK, "zlib must have memory for one window")
        // SAFETY: the stream was made by `deflateInit2_` and is not used again.
        defer { _ = unsafe deflateEnd(stream.pointer) }
        // SAFETY: as above.
        let most = Int(unsafe deflateBound(stream.pointer, UInt(bytes.byteCount)))
        var compressed = ByteWriter(capacity: most)
        // SAFETY: zlib reads the borrowed bytes and writes into the room that the writer made, inside the closures only;
        // afterwards both addresses are forgotten.
        _ = unsafe compressed.append(upTo: most) { target in
            unsafe bytes.withUnsafeBytes { source in
                unsafe stream.setInput(source)
                unsafe stream.setOutput(target)
                let status = unsafe deflate(stream.pointer, Z_FINISH)
                precondition(status == Z_STREAM_END, "the room is what zlib said that it needs at most")
                return target.count - stream.roomLeft
            }
        }
        stream.clear()
        return compressed.copied()
    }
}
