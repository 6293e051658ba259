import CLinux
import Glibc

/// Program that this process runs, and the programs installed beside it.
public enum OwnProgram {
    /// Path of this process's executable; nil if the kernel does not provide it.
    public static let path: String? = {
        // SAFETY: the kernel writes at most as many bytes as there are, and only those are read.
        unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(PATH_MAX)) { room in
            guard let start = room.baseAddress else { return nil }
            let count = unsafe readlink("/proc/self/exe", start, room.count)
            guard count > 0 else { return nil }
            return unsafe String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
        }
    }()

    /// Arguments of the command line without the program's name. `CommandLine` is not used, because it reads them from
    /// /proc. If /proc is not mounted, it returns none, and every command would seem to have no arguments.
    public static var words: [String] {
        (1..<max(1, tw_argument_count())).map { place in
            // SAFETY: the text ends in a zero byte, and lives as long as the process.
            unsafe String(cString: tw_argument(place))
        }
    }

    /// Returns the path of another program in this program's directory, even if that program does not exist.
    public static func beside(_ name: String) -> String? {
        guard let path, let slash = path.lastIndex(of: "/") else { return nil }
        return path[...slash] + name
    }

    /// Replaces this process's program with another one, which has the same streams and environment. `words[0]` is its
    /// path.
    public static func become(_ words: [String]) throws(SystemError) -> Never {
        precondition(!words.isEmpty, "a program has a name")
        let list = CStringArray(words)
        // SAFETY: the list ends in a null pointer and lives as long as the closure, and the call keeps none of it.
        _ = try systemCall("execute", words[0]) { unsafe execv(words[0], list.mutable) }
        preconditionFailure("execv returns only when it failed")
    }
}
