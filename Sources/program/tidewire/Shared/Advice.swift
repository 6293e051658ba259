import EventLog
import Glibc
import Postgres
import System

extension SystemError {
    /// Advice for an error of the operating system, by its code.
    var advice: String {
        switch code {
        case ENOENT: "Is the path right, and does the directory exist?"
        case EACCES, EPERM: "Run the command as the user that owns the path, or change the path's permissions."
        case ENOSPC, EDQUOT: "Free space on the disk, or choose a path on another one."
        case EROFS: "Choose a path on a disk that can be written."
        case EMFILE, ENFILE: "Raise the limit of open files (ulimit -n)."
        case EIO: "The disk reports an error: look at the kernel's log (dmesg), and copy what can still be read."
        case EADDRINUSE: "Choose another address, or stop the program that uses this one."
        case ENOTDIR, EISDIR, EEXIST, ENOTEMPTY: "Choose another path."
        default: "Look at the path and the kernel's log (dmesg), then try again."
        }
    }
}

extension EventLogError {
    /// Advice for an error of the event log.
    var advice: String {
        switch self {
        case .failure: "Check the disk, then try again; 'tidewire log verify' reads every checksum."
        case .damaged: "'tidewire log verify' shows the damage; docs/backup.md says how to continue."
        case .outsideRetention(let oldest): "--from @\(oldest) or --from oldest shows what is left."
        case .lockedElsewhere: "Stop that process first, or choose another --data-dir."
        case .foreignSource: "Choose an empty --data-dir for this database, or the database that the log belongs to."
        case .missing: "Name the hub's data directory with --data-dir, or a log directory with --log."
        }
    }
}

extension PostgresError {
    /// PostgreSQL's own hint, or else advice by the kind of the error.
    var advice: String {
        if let hint { return hint }
        return isConnectionLost
            ? "Does the server run, and does it accept connections from here? 'tidewire doctor' checks the database."
            : "'tidewire doctor' checks what the hub needs in the database; the server's log may say more."
    }
}
