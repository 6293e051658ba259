import CLinux
import Glibc

/// Local time, according to the time zone data of the C library.
public enum LocalTime {
    /// Sets the process's time zone. Returns false if the system has no file for it. Call
    /// before other threads need the zone.
    public static func use(zone: String) -> Bool {
        let isName = !zone.isEmpty && !zone.hasPrefix("/") && !zone.contains("..") && !zone.utf8.contains(0)
        // SAFETY: Swift passes C strings that live for the calls.
        guard isName, unsafe access("/usr/share/zoneinfo/" + zone, R_OK) == 0 else { return false }
        unsafe setenv("TZ", zone, 1)
        tzset()
        return true
    }

    /// Returns the offset from UTC at a time, in seconds east of Greenwich. The time is in seconds since 1970.
    public static func offset(_ seconds: Int64) -> Int64 {
        var moment = time_t(seconds)
        // SAFETY: both are locals, the structure's pointer to a zone name is not used, and the call keeps no pointer.
        var parts = unsafe tm()
        guard unsafe localtime_r(&moment, &parts) != nil else { return 0 }
        return unsafe Int64(parts.tm_gmtoff)
    }
}
