import CLinux
import Glibc

/// Pipe of the kernel: bytes written to `writing` can be read from `reading`. The creator closes both ends.
public struct Pipe: Sendable {
    public let reading: Int32
    public let writing: Int32

    public init() throws(SystemError) {
        var ends: (Int32, Int32) = (-1, -1)
        _ = try systemCall("pipe", "") {
            // SAFETY: two descriptors lie side by side in the local tuple.
            unsafe withUnsafeMutablePointer(to: &ends) { pair in
                unsafe pair.withMemoryRebound(to: Int32.self, capacity: 2) { unsafe tw_pipe($0) }
            }
        }
        (reading, writing) = ends
    }
}

/// Blocking reads and writes on descriptors such as pipes and the standard streams.
public enum ByteStream {
    /// Writes all bytes. Returns false if the write fails, for example because the reader has closed the pipe.
    public static func write(_ bytes: [UInt8], to descriptor: Int32) -> Bool {
        Signals.withoutBrokenPipe { writeAll(bytes, to: descriptor) }
    }

    private static func writeAll(_ bytes: [UInt8], to descriptor: Int32) -> Bool {
        var written = 0
        while written < bytes.count {
            // SAFETY: the kernel reads within the array, behind what it has taken before.
            let count = unsafe bytes.withUnsafeBytes { buffer in
                unsafe Glibc.write(descriptor, buffer.baseAddress.map { unsafe $0 + written }, buffer.count - written)
            }
            if count < 0, errno != EINTR { return false }
            written += max(0, count)
        }
        return true
    }

    /// Returns the available bytes. If there are none, waits for some. Returns an empty array at the end of the stream.
    public static func read(_ descriptor: Int32, atMost limit: Int = 64 << 10) -> [UInt8] {
        while true {
            var count = 0
            // SAFETY: the kernel writes within the buffer, and says how much.
            let bytes = unsafe [UInt8](unsafeUninitializedCapacity: limit) { buffer, used in
                count = unsafe Glibc.read(descriptor, buffer.baseAddress, limit)
                used = max(0, count)
            }
            if count >= 0 || errno != EINTR { return bytes }
        }
    }

    public static func close(_ descriptor: Int32) { _ = Glibc.close(descriptor) }
}
