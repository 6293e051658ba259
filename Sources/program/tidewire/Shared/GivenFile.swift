import Bytes
import Console
import Diagnostics
import Glibc
import Settings
import System

extension Arguments {
    /// Returns the contents of the file that an option names. For the path `-` it reads standard input.
    func contents(of path: String, named option: String, _ terminal: Terminal) throws(UsageError) -> String {
        if path == "-" { return try StandardInput.text(option) }
        switch terminal.surroundings.readFile(path) {
        case .bytes(let bytes): return String(decoding: bytes, as: UTF8.self)
        case .missing: throw UsageError("\(option) \(path): no such file")
        case .unreadable(let reason): throw UsageError("\(option) \(path): \(reason)")
        }
    }
}

/// Standard input of the command.
private enum StandardInput {
    static func text(_ option: String) throws(UsageError) -> String {
        var input = ByteWriter(capacity: 4096)
        do throws(SystemError) {
            while input.count <= Limits.maximumConfigurationFileBytes {
                // SAFETY: the kernel writes at most as many bytes as the buffer has, and says how many.
                let count = unsafe try input.append(upTo: 4096) { room throws(SystemError) in
                    try systemCall("read", "standard input") {
                        unsafe Glibc.read(STDIN_FILENO, room.baseAddress, room.count)
                    }
                }
                if count == 0 { return input.bytes.text }
            }
        } catch {
            throw UsageError("\(option) -: \(error)")
        }
        throw UsageError("\(option) -: more than \(Limits.maximumConfigurationFileBytes) bytes")
    }
}
