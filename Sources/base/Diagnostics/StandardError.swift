import Glibc

/// Standard error stream, which is for messages to the operator. Standard output is for the data that a command prints.
public enum StandardError {
    /// True if standard error is a terminal and its user has not asked for plain text
    /// (https://no-color.org: set and not empty).
    public static var wantsColour: Bool {
        // SAFETY: getenv's string is read at once. The environment changes only in `LocalTime.use`, at a command's
        // start, before there are other threads.
        guard let noColour = unsafe getenv("NO_COLOR") else { return isatty(STDERR_FILENO) == 1 }
        // SAFETY: getenv returns a string that ends in a zero byte, so there is a first byte to read.
        return unsafe noColour.pointee == 0 && isatty(STDERR_FILENO) == 1
    }

    /// Writes one whole line, in one system call unless the kernel accepts only a part or a signal interrupts it.
    ///
    /// A line that cannot be written is dropped. There is no better place to report that, and the hub must not stop for
    /// it.
    @Sendable
    public static func write(_ line: [UInt8]) {
        var written = 0
        while written < line.count {
            let result = writeOnce(line, from: written)
            guard result > 0 || errno == EINTR else { return }
            written += max(0, result)
        }
    }

    private static func writeOnce(_ line: [UInt8], from start: Int) -> Int {
        // SAFETY: the pointer is used inside the closure only, and start < count, so the range lies in the array.
        unsafe line.withUnsafeBytes { bytes in
            unsafe Glibc.write(STDERR_FILENO, bytes.baseAddress?.advanced(by: start), bytes.count - start)
        }
    }
}
