import CLinux
import Glibc

/// Host name of this machine.
public enum HostName {
    public static let current: String = {
        var bytes = [CChar](repeating: 0, count: 256)
        // SAFETY: the kernel writes at most as many bytes as the buffer has, less the zero at its end.
        let outcome = unsafe bytes.withUnsafeMutableBufferPointer { buffer in
            unsafe buffer.baseAddress.map { unsafe gethostname($0, buffer.count - 1) } ?? -1
        }
        guard outcome == 0 else { return "localhost" }
        return String(decoding: bytes.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }()
}
