import Glibc

/// Processors that this process may use.
public enum Processors {
    public static var count: Int { max(1, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))) }
}
