import Channels
import Testing
